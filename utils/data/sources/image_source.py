"""Images that can be scanned: their bytes, size and labels.

Wings register further kinds of files that hold many images.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from duet.utils.data.image.header import CheckedFile, check_file
from duet.utils.data.sources.label_file import (
    Labels,
    label_file_of,
    overlooked_labels,
    parse_labels,
    read_label_bytes,
    require_drawable,
)
from duet.utils.data.sources.remarks import Remark
from duet.utils.data.sources.samples import RecordPlace
from duet.utils.files.array_cache import state_of_files
from duet.utils.optional import require_wing

# Suffix of files that hold many images -> the wing that reads them, a module with RECORDS.
RECORD_WINGS = {".ffr": "duet.utils.data.records.record_images"}


@dataclass(frozen=True, slots=True)
class ImageSource(ABC):
    """An image that can be scanned, and its labels."""

    path: Path  # the file; for a record, its file followed by its name
    place: RecordPlace | None = field(default=None, kw_only=True)  # None for a file of its own

    @property
    @abstractmethod
    def labels_at(self) -> str:
        """The place of its labels, existing or expected, for messages."""

    @abstractmethod
    def state(self, now_ns: int) -> bytes | None:
        """Return a state that changes with its size or labels; None if unsure."""

    def remarks(self, num_objects: int) -> list[Remark]:
        """Return what is to be said about its labels if that many objects are used."""
        return []

    def check(self, max_pixels: int) -> CheckedFile:
        """Return the size in pixels as decoded, or raise BrokenImageError."""
        return check_file(self.path, max_pixels)

    def label_bytes(self) -> bytes | None:
        """Return its label file, None if it lacks one; b"" if its labels are no such file."""
        return b""

    def read_labels(self, num_classes: int, size: tuple[int, int]) -> Labels:
        """Return the objects of an image of that size, or raise BrokenLabelError."""
        labels = parse_labels(self.label_bytes(), num_classes)
        if labels.polygons_norm is not None:
            require_drawable(labels.polygons_norm.moved(size[::-1]), size)
        return labels


class ImageFile(ImageSource):
    """An image in a file of its own, with a label file in YOLO's format."""

    __slots__ = ()

    @property
    def labels_at(self) -> str:
        return label_file_of(str(self.path))

    def state(self, now_ns: int) -> bytes | None:
        """Return size and times of both files; None if one has just been changed."""
        files = str(self.path), self.labels_at, overlooked_labels(str(self.path))
        return state_of_files(tuple(filter(None, files)), now_ns)

    def remarks(self, num_objects: int) -> list[Remark]:
        overlooked = "" if num_objects else overlooked_labels(str(self.path))
        text = f"{overlooked}: is not read; call it {self.labels_at}"
        return [Remark("near_label", text)] if overlooked else []

    def label_bytes(self) -> bytes | None:
        return read_label_bytes(Path(self.labels_at))


def image_of(source: Path | ImageSource) -> ImageSource:
    """Return an image source; a path becomes an `ImageFile`."""
    return ImageFile(source) if isinstance(source, Path) else source


class Records(NamedTuple):
    """How a kind of file that holds many images is read."""

    images: Callable[[Path], Sequence[ImageSource]]
    """The images of a file, each with its place; DatasetError if the file is damaged."""
    read: Callable[[RecordPlace], np.ndarray]
    """The bytes of an image, (N,) uint8; DatasetError if they are damaged."""


def records_of(path: Path) -> Records:
    """Return how a record file is read; the wing is imported by the first one."""
    return require_wing((RECORD_WINGS[path.suffix],), str(path)).RECORDS
