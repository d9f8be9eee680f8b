"""Label files whose image is not there.

Before: `label_file.label_path` says where the labels of each image are. After: `checking.py`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from utils.data.check.kinds import Finding
from utils.data.image.limits import IMAGE_SUFFIXES
from utils.data.sources.label_file import BrokenLabelError, label_path, read_label_bytes
from utils.data.sources.labels import ImageFile, ImageSource

COLUMNS = 5  # of a line of labels, at least


def find_lost_labels(sources: Sequence[ImageSource]) -> list[Finding]:
    """Return a finding for each label file beside those of the images that has no image.

    Only folders are looked into that hold a label file of one of the images. An image that no
    split names is an image too. Text files of other content, as a list of classes, are no labels.
    """
    known: dict[Path, set[str]] = {}  # the stems with an image, by folder of labels
    beside: dict[Path, set[Path]] = {}  # the folders of images, by folder of labels
    for source in sources:
        if isinstance(source, ImageFile):
            labels = label_path(source.path)
            known.setdefault(labels.parent, set()).add(labels.stem)
            beside.setdefault(labels.parent, set()).add(source.path.parent)
    return [
        Finding("lost_labels", "", str(path), "no image of this name")
        for folder, stems in sorted(known.items())
        for path in _lost(folder, stems, beside[folder])
    ]


def _lost(folder: Path, stems: set[str], image_folders: set[Path]) -> Iterator[Path]:
    """Yield the label files of a folder that belong to no image, by name."""
    unlisted = [name for name in _names(folder) if name.endswith(".txt")]
    unlisted = sorted(name for name in unlisted if Path(name).stem not in stems)
    if not unlisted:
        return
    others = {
        Path(name).stem
        for place in image_folders
        for name in _names(place)
        if Path(name).suffix.lower() in IMAGE_SUFFIXES
    }
    for name in unlisted:
        if Path(name).stem not in others and _holds_labels(folder / name):
            yield folder / name


def _names(folder: Path) -> list[str]:
    try:
        return [entry.name for entry in os.scandir(folder)]
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
