"""Images in folders that are named for their classes: DIR/train/cat/1.jpg, DIR/val/dog/2.jpg."""

import logging
import os
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from duet.utils.data.sources.formats.names import split_folders, split_of
from duet.utils.data.sources.image_sources import (
    ImageSource,
    is_folder,
    search_files,
    sorted_images,
)
from duet.utils.data.sources.label_file import BrokenLabelError, Labels, label_file_of
from duet.utils.data.sources.remarks import Remarks
from duet.utils.data.sources.samples import SampleTable
from duet.utils.errors import DatasetError, brief
from duet.utils.files.array_cache import state_of_files
from duet.utils.image_limits import IMAGE_SUFFIXES

FEWEST_CLASSES = 2
FULL_BOX = (0.5, 0.5, 1.0, 1.0)  # cx, cy, width, height of what fills an image
_OF_BOXES = ("labels", "annotations")  # folders of another kind of dataset
_OF_TOOLS = ("__macosx",)  # besides those that begin with a dot

log = logging.getLogger("data")


class ClassFolders(NamedTuple):
    """A folder of folders, each named for the class of the images in it and further in."""

    folder: Path


@dataclass(frozen=True, slots=True)
class ClassImage(ImageSource):
    class_index: int

    @property
    def labels_at(self) -> str:
        return f"the folder {self.path.parent}"

    def state(self, now_ns: int) -> bytes | None:
        file = state_of_files((str(self.path),), now_ns)
        return None if file is None else file + f"class {self.class_index}".encode()

    def read_labels(self, num_classes: int, size: tuple[int, int]) -> Labels:
        if self.class_index >= num_classes:
            raise BrokenLabelError(f"class {self.class_index} of {num_classes}", "unknown_class")
        boxes = np.array([FULL_BOX], np.float32)
        return Labels(np.array([self.class_index], np.int64), boxes, None)


def find_class_folders(path: Path) -> Mapping[str, list[ClassFolders]]:
    """Return the class folders of each split, or of "" if they are not divided; often none.

    Folders whose images have other labels, and possible splits, are not classes. Neither are
    folders beside images, except beside a few images in the folder of a split.
    """
    splits: dict[str, list[ClassFolders]] = {}
    names: set[str] = set()
    for part in split_folders(path):
        if found := _classes_in(part):
            splits.setdefault(split_of(part.name), []).append(ClassFolders(part))
            names.update(found)
    if len(names) >= FEWEST_CLASSES:
        return splits
    names = set() if _images_beside(path) else {x for x in _classes_in(path) if not split_of(x)}
    return {"": [ClassFolders(path)]} if len(names) >= FEWEST_CLASSES else {}


def as_classes(entry: Path, class_names: Sequence[str]) -> Path | ClassFolders:
    """Return an entry of a dataset YAML, as `ClassFolders` if it is one.

    class_names: names in the YAML, which the folders must have; () if it has none.
    """
    if not os.path.isdir(entry):  # nor refuses a name that is too long
        return entry
    found = _classes_in(entry)
    is_one = not found.isdisjoint(class_names) if class_names else bool(found)
    return ClassFolders(entry) if is_one else entry


def folder_names(entries: Iterable[ClassFolders]) -> set[str]:
    return {name for entry in entries for name in _classes_in(entry.folder)}


def class_names_of(entries: Sequence[ClassFolders], dataset: str) -> tuple[str, ...]:
    """Return the names of all folders with an image in all splits, sorted by code points.

    DatasetError: there are fewer than two, or one is not UTF-8.
    """
    names: set[str] = set()
    empty: set[str] = set()
    for entry in entries:
        for name, folder in _folders_in(entry.folder):
            (names if any(search_files(folder)) else empty).add(name)
    if left_out := sorted(empty - names):
        log.warning("%s: folders without an image are not classes: %s", dataset, brief(left_out))
    if len(names) < FEWEST_CLASSES:
        raise DatasetError(
            f"{dataset}: has only images of {brief(sorted(names))}; at least {FEWEST_CLASSES} "
            "folders of images, each named for its class, are needed"
        )
    for encoded in map(os.fsencode, sorted(names)):
        if encoded.decode(errors="ignore").encode() != encoded:
            text = f"the folder {brief(encoded)} is not named in UTF-8; rename it"
            raise DatasetError(f"{dataset}: {text}")
    return tuple(sorted(names))


def class_images(
    entry: ClassFolders, class_names: Sequence[str], remarks: Remarks
) -> list[ClassImage]:
    """Return the images of all class folders, class by class and sorted.

    remarks: collects what is left out.

    DatasetError: a folder with images is of no class of the dataset, or there is no image.
    """
    index_of = {name: index for index, name in enumerate(class_names)}
    found: list[ClassImage] = []
    for name, folder in sorted(_folders_in(entry.folder)):
        images = sorted_images(folder, remarks)
        if images and name not in index_of:
            raise DatasetError(
                f"{folder}: its images are of class {brief(name)}, and the dataset's names are "
                f"{brief(list(class_names))}; add it to 'names', or move the folder away"
            )
        found += [ClassImage(image, index_of[name]) for image in images]
    if beside := sorted(_images_beside(entry.folder)):
        remarks.add("beside_classes", str(entry.folder / beside[0]), len(beside))
    if not found:
        raise DatasetError(f"{entry.folder}: no folder in it holds an image")
    return found


def fill_images(samples: SampleTable) -> bool:
    """Return whether each image has one object, which fills it: what class folders give."""
    boxes = samples.boxes_cxcywh_norm
    return len(samples) > 0 and bool((samples.num_objects == 1).all() and (boxes == FULL_BOX).all())


def similar_names(class_names: Sequence[str]) -> list[tuple[str, ...]]:
    """Return groups of names that differ only in case, blanks, "-", "_" or the form of letters.

    Between digits, "-" and "_" count: 1_11 and 11_1 are two traffic signs.
    """
    groups: dict[str, list[str]] = {}
    for name in class_names:
        folded = unicodedata.normalize("NFKC", name).casefold()
        groups.setdefault(
            re.sub(r"(?<!\d)[-_ \t\n]|[-_ \t\n](?!\d)", "", folded) or name, []
        ).append(name)
    return [tuple(group) for group in groups.values() if len(group) > 1]


def _classes_in(folder: Path) -> set[str]:
    """Return the names of folders with images; none if these do not look like class folders.

    That is, as many images lie beside them, or images have label files.
    """
    try:
        beside, inner = _images_beside(folder), dict(_folders_in(folder))
    except OSError:  # reported when the images are listed
        return set()
    if any(name.lower() in _OF_BOXES for name in inner):
        return set()
    first = {name: next(search_files(path), "") for name, path in inner.items()}
    if any(os.path.exists(label_file_of(image)) for image in first.values() if image):
        return set()
    names = {name for name, image in first.items() if image}
    return names if len(beside) < max(len(names), 1) else set()


def _images_beside(folder: Path) -> list[str]:
    shown = (name for name in os.listdir(folder) if not name.startswith("."))
    return [name for name in shown if os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES]


def _folders_in(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield name and path of the folders in a folder, linked ones too, in no order."""
    with os.scandir(folder) as entries:
        for entry in entries:
            is_of_tool = entry.name.startswith(".") or entry.name.lower() in _OF_TOOLS
            if not is_of_tool and is_folder(entry):
                yield entry.name, Path(entry.path)
