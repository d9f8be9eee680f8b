"""Files that lie beside those of the dataset and belong to nothing: labels, images.

Before: `label_file.label_file_of` says where the labels of each image are. After: `checking.py`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from utils.data.check.kinds import Finding
from utils.data.image.limits import IMAGE_SUFFIXES
from utils.data.sources.label_file import BrokenLabelError, label_file_of, read_label_bytes
from utils.data.sources.labels import ImageFile, ImageSource

COLUMNS = 5  # of a line of labels, at least


def find_unpaired(sources: Sequence[ImageSource]) -> list[Finding]:
    """Return the label files without an image, and the images that nothing names.

    Only folders are looked into that hold an image of the dataset, or its label file. Text files
    of other content, as a list of classes, are no labels.
    """
    in_files = [source for source in sources if source.place is None]
    images = _by_folder(source.path for source in in_files)
    unused = _unused_images(images)
    paths = [source.path for source in in_files if isinstance(source, ImageFile)]
    known = _by_folder(map(_label_file, [*paths, *unused]))
    lost = _lost_labels(_by_folder(map(_label_file, paths)), known)
    unnamed = "no split, list or annotation names it"
    return [
        *(Finding("lost_labels", "", str(path), "no image of this name") for path in lost),
        *(Finding("unused_image", "", str(path), unnamed) for path in unused),
    ]


def _label_file(image: Path) -> Path:
    return Path(label_file_of(str(image)))


def _by_folder(paths: Iterable[Path]) -> dict[Path, set[str]]:
    """Return the names of files by the folder they are in."""
    found: dict[Path, set[str]] = {}
    for path in paths:
        found.setdefault(path.parent, set()).add(path.name)
    return found


def _unused_images(named: Mapping[Path, set[str]]) -> list[Path]:
    return [
        folder / name
        for folder, names in sorted(named.items())
        for name in _names(folder)
        if os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES and name not in names
    ]


def _lost_labels(folders: Mapping[Path, set[str]], known: Mapping[Path, set[str]]) -> list[Path]:
    """Return the label files in folders that are not among those known."""
    return [
        folder / name
        for folder in sorted(folders)
        for name in _names(folder)
        if name.endswith(".txt") and name not in known[folder] and _holds_labels(folder / name)
    ]


def _names(folder: Path) -> list[str]:
    """Return the names in a folder, sorted; none of one that cannot be read."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _holds_labels(path: Path) -> bool:
    """Return whether the first line of a file is one of labels."""
    try:
        content = read_label_bytes(path) or b""
    except BrokenLabelError:
        return False
    columns = content.lstrip().partition(b"\n")[0].split()
    try:
        return len([float(column) for column in columns]) >= COLUMNS
    except ValueError:
        return False
