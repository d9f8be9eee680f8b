"""--fix: a dataset of its own with corrected label files, whose images are links to the originals.

    FOLDER/images/train/a.jpg    a link to the image
    FOLDER/labels/train/a.txt    its labels in YOLO's format
    FOLDER/NAME.yaml             the dataset
    FOLDER/left_out.txt          images that are not in it, and why

Labels lie where `label_file.label_path` looks for those of the links. So no image is copied, and no
original is touched. Boxes are clipped; objects without an area, repeated ones and those of an
unknown class are dropped. An image with a label that nobody can guess is left out.

Before: `checking.py`. After: `train.py --data FOLDER/NAME.yaml`.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from backend.words import count
from utils.boxes import xyxy_to_cxcywh
from utils.data.check.checking import Check
from utils.data.check.inspection import CheckedImage, has_no_labels
from utils.data.check.kinds import KINDS, Finding
from utils.data.check.rows import Row, read_rows
from utils.data.image.limits import IMAGE_SUFFIXES
from utils.data.records.command.folders import (
    dataset_yaml_text,
    new_folder,
    refuse_existing,
)
from utils.data.sources.class_folders import ClassFolders
from utils.data.sources.dataset_yaml import DatasetSpec, Entry
from utils.data.sources.formats.format import AnnotatedFolder
from utils.data.sources.label_file import label_path
from utils.errors import DatasetError
from utils.screen.text import printable

BROKEN = ("missing_image", "unreadable_image", "truncated_image", "image_size")
DROPPED = ("zero_area", "repeated_object", "unknown_class")
LEFT_OUT = "left_out.txt"


def refuse_place(dataset: DatasetSpec, folder: Path) -> None:
    """Raise DatasetError for a folder that exists, or would lie among the dataset's own files.

    Also where images are labelled by the folders they are in: there are no labels to correct.
    """
    refuse_existing(folder, "--fix")
    entries = [*dataset.train, *dataset.val, *dataset.test]
    if any(isinstance(entry, ClassFolders) for entry in entries):
        raise DatasetError(
            "--fix corrects labels, and these images are labelled by their folders; leave it out, "
            "and move or delete the images that findings.csv names"
        )
    for place in [place for entry in entries for place in _folders_of(entry)]:
        if folder.resolve().is_relative_to(place.resolve()):
            raise DatasetError(
                f"--fix {folder} would lie in {place}, whose files are the dataset's; name a "
                "folder elsewhere"
            )


def _folders_of(entry: Entry) -> list[Path]:
    """Return the folders of images and of labels; that of label files need not be there."""
    if isinstance(entry, AnnotatedFolder):
        return [place for place in (entry.images, entry.annotations) if place.is_dir()]
    if isinstance(entry, ClassFolders):
        return [entry.folder]
    return [entry, label_path(entry / "image").parent] if entry.is_dir() else []


def write_corrected(check: Check, folder: Path) -> list[str]:
    """Write the corrected copy into a new folder; return what was done, in lines.

    Raises:
        DatasetError: images in record files, no image that can be used, or a folder that exists or
            cannot be written.
    """
    if any(image.source.place is not None for image in check.images):
        raise DatasetError(
            "--fix: the images are packed; unpack them first: python -m utils.data.records unpack"
        )
    name = f"{check.dataset.name}.yaml"
    with new_folder(folder, "--fix") as new:
        copy = _Copy(new, check)
        entries = {split: f"images/{split}" for split in check.splits if copy.write(split)}
        if not entries:
            raise DatasetError("--fix: no image is left that could be used; see findings.csv")
        entries |= _same_entries(check, entries)
        text = dataset_yaml_text(entries, check.dataset.class_names)
        (new / name).write_text(text, encoding="utf-8")
        (new / LEFT_OUT).write_text("".join(copy.left_out), encoding="utf-8")
    changes = [f"{number:,} {what}" for what, number in sorted(copy.changes.items())]
    return [
        f"corrected copy: {count(copy.num_images, 'image')}; objects: "
        f"{', '.join(changes) or 'none changed'}",
        f"{folder / LEFT_OUT} lists {count(len(copy.left_out), 'reason')} to leave an image out",
        " ".join(["train with --data", str(folder / name), *check.limit]),
    ]


def _same_entries(check: Check, entries: Mapping[str, str]) -> dict[str, str]:
    """Return the entries of splits that name the images of another one."""
    dataset = check.dataset
    return {
        found.split: entry
        for found in check.of_kind("same_images")
        for split, entry in entries.items()
        if getattr(dataset, split) == getattr(dataset, found.split)
    }


class _Copy:
    """A corrected copy while it is written.

    Attributes:
        changes: how many objects were corrected in which way.
        left_out: lines that name an image and why it is left out.
    """

    def __init__(self, folder: Path, check: Check) -> None:
        self._folder, self._check = folder, check
        self._labels: set[Path] = set()  # files that are written
        self._links: set[Path] = set()
        self.changes: Counter[str] = Counter()
        self.left_out: list[str] = []
        self._broken: dict[int, Finding] = {
            found.image: found for kind in BROKEN for found in check.of_kind(kind)
        }

    @property
    def num_images(self) -> int:
        return len(self._links)

    def write(self, split: str) -> int:
        """Write the images of a split that can be decided on; return how many."""
        before = self.num_images
        images = {  # by path: one that is listed twice is written once
            os.path.abspath(image.source.path): (number, image)
            for number, image in enumerate(self._check.images)
            if image.split == split
        }
        base = os.path.commonpath([os.path.dirname(path) for path in images]) if images else ""
        for path, (number, image) in images.items():
            link = self._folder / "images" / split / os.path.relpath(path, base)
            if found := self._broken.get(number):
                self._leave_out(found.where, found.text)
            elif image.size:
                self._write_image(link, path, image)
        return self.num_images - before

    def _leave_out(self, where: str, why: str) -> None:
        self.left_out.append(f"{printable(where)}: {printable(why)}\n")

    def _write_image(self, link: Path, path: str, image: CheckedImage) -> None:
        """Link an image and write its labels, if all of them can be decided on."""
        assert image.size
        rows = read_rows(image.source, len(self._check.dataset.class_names), image.size)
        undecided = [row for row in rows if not row.is_decided and row.kind not in DROPPED]
        for row in undecided:
            where = (
                f"{image.source.labels_at}: {row.place}" if row.place else image.source.labels_at
            )
            self._leave_out(where, row.fault)
        if link.suffix.lower() not in IMAGE_SUFFIXES:
            self._leave_out(path, "its name does not end as that of an image")
        elif not undecided:
            lines = None if has_no_labels(image.source) else self._corrected(rows)
            # a.jpg and a.png share a label file; a_png.png may be there too.
            while link in self._links or label_path(link) in self._labels:
                link = link.with_name(f"{link.stem}_{link.suffix[1:]}{link.suffix}")
            self._write(link, path, lines)

    def _write(self, link: Path, path: str, lines: Sequence[str] | None) -> None:
        labels = label_path(link)
        for file in (link, labels):
            file.parent.mkdir(parents=True, exist_ok=True)
        os.symlink(path, link)
        if lines is not None:
            labels.write_text("".join(lines), encoding="utf-8")
        self._links.add(link)
        self._labels.add(labels)

    def _corrected(self, rows: Sequence[Row]) -> list[str]:
        """Return the lines of a label file with what is right, clipped."""
        for row in rows:
            if row.kind in DROPPED:
                self.changes[f"dropped ({KINDS[row.kind].title.lower()})"] += 1
            elif row.kind:
                self.changes["clipped"] += 1
        return [line for row in rows if row.is_decided if (line := _line(row))]


def _line(row: Row) -> str:
    """Return a line of a label file; "" if nothing of the object lies in the image."""
    outline = np.clip(row.outline_norm, 0, 1)
    left, top, right, bottom = np.clip(row.box_xyxy_norm, 0, 1)
    if len(outline):
        left, right = outline[0::2].min(), outline[0::2].max()
        top, bottom = outline[1::2].min(), outline[1::2].max()
    if right <= left or bottom <= top:
        return ""
    box = xyxy_to_cxcywh(np.array([left, top, right, bottom]))
    numbers = outline if len(outline) else box
    return " ".join([str(row.class_index), *(f"{number:.9g}" for number in numbers)]) + "\n"
