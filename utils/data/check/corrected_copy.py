"""--fix: a new dataset with corrected label files, whose images are links to the originals.

    FOLDER/images/train/a.jpg    a link to the image
    FOLDER/labels/train/a.txt    its labels in YOLO's format
    FOLDER/NAME.yaml             the dataset
    FOLDER/left_out.txt          images that are not in it, and why

No original is changed, and no image is copied but a JPEG that lacks its end mark and, on Windows,
those that cannot be linked. Boxes are clipped; objects without an area, repeated ones and unknown
classes are dropped. An image with an undecidable label is left out.
"""

import os
import sys
from pathlib import Path

import numpy as np

from duet.utils.data.check.checking import Check
from duet.utils.data.check.inspection import is_unlabelled, read_rows
from duet.utils.data.image.header import with_end
from duet.utils.data.sources.class_folders import ClassFolders
from duet.utils.data.sources.dataset_yaml import DatasetSpec, dataset_yaml_text
from duet.utils.data.sources.formats.format import AnnotatedFolder
from duet.utils.data.sources.label_file import LabelRow, label_path
from duet.utils.errors import DatasetError
from duet.utils.files.atomic import link_or_copy, new_folder, refuse_existing
from duet.utils.files.regular import read_bytes
from duet.utils.geometry.boxes import xyxy_to_cxcywh
from duet.utils.image_limits import IMAGE_SUFFIXES
from duet.utils.text import count, printable

DROPPED = ("zero_area", "repeated_object", "unknown_class")
LEFT_OUT = "left_out.txt"


def refuse_place(dataset: DatasetSpec, folder: Path, page: Path) -> None:
    """Raise DatasetError for a folder that exists or lies inside the page's or the dataset's.

    Also if images are labelled by their folders: there are no labels to correct.
    """
    refuse_existing(folder, "--fix")
    places = [page]
    for entry in dataset.entries:
        if isinstance(entry, ClassFolders):
            raise DatasetError(
                "--fix corrects labels, and these images are labelled by their folders; leave it "
                "out, and move or delete the images that findings.csv names"
            )
        if isinstance(entry, AnnotatedFolder):
            places += [entry.images, entry.annotations]
        elif entry.is_dir():
            places += [entry, label_path(entry / "image").parent]
    for place in places:
        if folder.resolve().is_relative_to(place.resolve()):
            raise DatasetError(f"--fix {folder} would be inside {place}; choose another folder")


def write_corrected(check: Check, folder: Path) -> list[str]:
    """Write the corrected copy into a new folder; return a summary, in lines.

    DatasetError: packed images, no usable image, or a folder that cannot be written.
    """
    if any(image.source.place is not None for image in check.images):
        raise DatasetError("--fix: the images are packed; unpack them first: duet records unpack")
    name, dataset = f"{check.dataset.name}.yaml", check.dataset
    with new_folder(folder, "--fix") as new:
        copy = _Copy(new, check)
        entries = {split: f"images/{split}" for split in check.splits if copy.write(split)}
        if not entries:
            raise DatasetError("--fix: no usable images are left; see findings.csv")
        (new / name).write_text(dataset_yaml_text(entries, dataset.class_names), encoding="utf-8")
        (new / LEFT_OUT).write_text("".join(copy.left_out), encoding="utf-8")
    return [
        f"corrected copy: {count(copy.num_images, 'image')}",
        f"{folder / LEFT_OUT} lists {count(len(copy.left_out), 'reason')} to leave an image out",
        f"train with --data {folder / name}",
    ]


class _Copy:
    """A corrected copy while it is written; `left_out`: lines that name an image and the reason."""

    def __init__(self, folder: Path, check: Check) -> None:
        self._folder, self._check = folder, check
        self._taken: set[Path] = set()  # links and label files
        self.num_images = 0
        self.left_out: list[str] = []
        self._without_end = {found.image for found in check.of_kind("no_end_mark")}
        self._broken = {found.image: found for found in check.of_kind("unusable_image")}

    def write(self, split: str) -> int:
        before = self.num_images
        images = {  # by path: an image listed twice is written once
            os.path.abspath(image.source.path): (number, image)
            for number, image in enumerate(self._check.images)
            if image.split == split
        }
        base = os.path.commonpath([os.path.dirname(path) for path in images]) if images else ""
        for path, (number, image) in images.items():
            if found := self._broken.get(number):
                self._leave_out(found.where, found.text)
            elif image.size:
                link = self._folder / "images" / split / os.path.relpath(path, base)
                self._write_image(link, path, number, image.size)
        return self.num_images - before

    def _with_class(self, row: LabelRow) -> LabelRow:
        """Return a row with its class in the dataset, where some are merged."""
        index = self._check.dataset.class_of(np.array(row.class_index))
        return row._replace(class_index=int(index))

    def _leave_out(self, where: str, why: str) -> None:
        self.left_out.append(f"{printable(where)}: {printable(why)}\n")

    def _write_image(self, link: Path, path: str, number: int, size: tuple[int, int]) -> None:
        """Link an image and write its labels, unless a label is undecidable."""
        image = self._check.images[number]
        rows = read_rows(image.source, len(self._check.dataset.names_in_labels), size)
        undecided = [row for row in rows if not row.is_decided and row.kind not in DROPPED]
        for row in undecided:
            self._leave_out(": ".join(filter(None, [image.source.labels_at, row.place])), row.fault)
        if link.suffix.lower() not in IMAGE_SUFFIXES:
            self._leave_out(path, "its name does not end like an image's")
        elif not undecided:
            # a.jpg and a.png share a label file; a_png.png may be there too.
            while self._taken & {link, label_path(link)}:
                link = link.with_name(f"{link.stem}_{link.suffix[1:]}{link.suffix}")
            labels = label_path(link)
            for file in (link, labels):
                file.parent.mkdir(parents=True, exist_ok=True)
            if number in self._without_end:
                link.write_bytes(with_end(read_bytes(path)))
            elif sys.platform == "win32":  # often allows no symbolic links
                link_or_copy(Path(path), link)
            else:
                os.symlink(path, link)
            if not is_unlabelled(image.source):
                lines = [_line(self._with_class(row)) for row in rows if row.is_decided]
                labels.write_text("".join(lines), encoding="utf-8")
            self._taken |= {link, labels}
            self.num_images += 1


def _line(row: LabelRow) -> str:
    """Return a line of a label file; "" if nothing of the object lies in the image."""
    outline = np.clip(row.outline_norm, 0, 1)
    left, top, right, bottom = np.clip(row.box_xyxy_norm, 0, 1)
    if len(outline):
        left, right = outline[0::2].min(), outline[0::2].max()
        top, bottom = outline[1::2].min(), outline[1::2].max()
    if right <= left or bottom <= top:
        return ""
    numbers = outline if len(outline) else xyxy_to_cxcywh(np.array([left, top, right, bottom]))
    words = [str(row.class_index), *(f"{number:.9g}" for number in numbers)]
    if len(outline) and words[-1] == "1":  # behind a box, it reads as a track id
        words[-1] = "1.0"
    return " ".join(words) + "\n"
