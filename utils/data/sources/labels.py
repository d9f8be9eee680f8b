"""Images -> samples with checked labels, and a report of what is broken."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from backend.words import count
from utils.data.image.being_read import read_as
from utils.data.image.header import BrokenImageError, read_image_size
from utils.data.image.limits import MAX_PIXELS
from utils.data.records.layout import RecordPlace
from utils.data.sources.label_cache import in_blocks, look_up
from utils.data.sources.label_file import (
    BrokenLabelError,
    Labels,
    label_file_of,
    parse_labels,
    read_label_bytes,
)
from utils.data.sources.samples import Places, SampleTable
from utils.data.sources.scan_arrays import ScanArrays, Scanned, arrays_of, join_scans
from utils.errors import DatasetError
from utils.files.array_cache import state_of_files
from utils.files.texts import Paths
from utils.polygons import starts_of
from utils.screen.text import printable

_SHOWN_PROBLEMS = 5


class ImageSource(Protocol):
    """An image that can be scanned, and what is labelled on it."""

    @property
    def path(self) -> Path:
        """The image's file, for messages and for readers."""

    @property
    def place(self) -> RecordPlace | None:
        """Where it lies in a record file, if it does."""

    @property
    def labels_at(self) -> str:
        """Where its labels are, or would be, for messages."""

    def state(self, now_ns: int) -> bytes | None:
        """Return what the two methods below depend on, besides arguments; None if unsure."""

    def read_size(self, max_pixels: int) -> tuple[int, int]:
        """Return (height, width) in pixels as decoded, or raise BrokenImageError."""

    def read_labels(self, num_classes: int, size: tuple[int, int]) -> Labels:
        """Return the objects of an image of that size, or raise BrokenLabelError."""


@dataclass(frozen=True)
class ImageFile:
    """An image in a file of its own, with a label file in YOLO's format."""

    path: Path
    place = None

    @property
    def labels_at(self) -> str:
        return label_file_of(str(self.path))

    def state(self, now_ns: int) -> bytes | None:
        """Return size and times of both files; None if one has just been changed."""
        image = str(self.path)
        return state_of_files((image, label_file_of(image)), now_ns)

    def read_size(self, max_pixels: int) -> tuple[int, int]:
        """Return (height, width) in pixels, or raise BrokenImageError."""
        return read_image_size(self.path, max_pixels)

    def read_labels(self, num_classes: int, size: tuple[int, int]) -> Labels:
        """Return the objects, none without a label file, or raise BrokenLabelError."""
        return parse_labels(read_label_bytes(Path(self.labels_at)), num_classes)


class ScanReport(NamedTuple):
    """The usable samples, in the order of the images, and a line for each problem found."""

    samples: SampleTable
    problems: list[str]


def unwatched() -> None:
    """Ignore the progress of a scan."""


def scan_samples(
    images: Sequence[Path | ImageSource],
    num_classes: int,
    progress: Callable[[], None] = unwatched,
    max_pixels: int = MAX_PIXELS,
) -> ScanReport:
    """Scan images to train on or to validate with.

    Args:
        progress: called before each image, from several threads.
        max_pixels: of an image; a larger one is left out.

    Raises:
        DatasetError: no image is usable, or none of them has any object.
    """
    return require_labels(images, scan_images(images, num_classes, progress, max_pixels))


def require_labels(images: Sequence[Path | ImageSource], report: ScanReport) -> ScanReport:
    """Return the report of these images if any has an object; else raise DatasetError."""
    if not len(report.samples.class_index):
        first = image_of(images[0])
        has_file = isinstance(first, ImageFile) or first.place is not None
        raise DatasetError(
            f"of {count(len(report.samples), 'usable image')} none has a labelled object; the "
            f"labels of {first.path} belong in "
            + (label_file_of(str(first.path)) if has_file else first.labels_at)
            + (", before it is packed" if first.place else "")
        )
    return report


def scan_images(
    images: Sequence[Path | ImageSource],
    num_classes: int,
    progress: Callable[[], None] = unwatched,
    max_pixels: int = MAX_PIXELS,
) -> ScanReport:
    """Read the header and the labels of every image.

    Broken images, and images with a broken label line, are left out; repeated label rows are
    removed. Either is a line of the report that names the file and the reason. An image without
    a label file is a background: it has no objects.

    Raises:
        DatasetError: no image is usable.
    """
    return report_usable(images, scan_each(images, num_classes, progress, max_pixels))


def scan_each(
    images: Sequence[Path | ImageSource],
    num_classes: int,
    progress: Callable[[], None],
    max_pixels: int,
    known: ScanArrays | None = None,
) -> ScanArrays:
    """Return the result of every image; there may be none.

    Args:
        known: of earlier scans; an image that was usable and is still as it was is not read again.
    """

    def state(index: int, now_ns: int) -> bytes | None:
        return image_of(images[index]).state(now_ns)

    def scan(index: int) -> Scanned:
        progress()
        return _scan_one(image_of(images[index]), num_classes, max_pixels)

    keys, rows = np.zeros(len(images), np.int64), np.full(len(images), -1)
    with ThreadPoolExecutor(min(16, 2 * (os.cpu_count() or 1))) as pool:
        if known is not None:
            keys, rows = look_up(pool, state, len(images), known.keys)
        again, missing = np.flatnonzero(rows >= 0), np.flatnonzero(rows < 0)
        for _ in again:
            progress()
        parts = [arrays_of(results) for results in in_blocks(pool, scan, missing)]
    found = join_scans([*parts, arrays_of([]) if known is None else known.select(rows[again])])
    if len(again):
        found = found.select(np.argsort(np.concatenate([missing, again])))
    # What is left out may be there again without a change: a disk's error has passed.
    return found._replace(keys=keys * (found.sizes[:, 0] > 0))


def report_usable(images: Sequence[Path | ImageSource], found: ScanArrays) -> ScanReport:
    """Return the report of these images; raise DatasetError when none is usable."""
    problems = list(found.problem_texts.select(np.flatnonzero(found.problem_bytes)))
    usable = np.flatnonzero(found.sizes[:, 0])
    if not len(usable):
        raise DatasetError(
            f"of {count(len(images), 'image')} none is usable:\n" + _first_lines(problems)
        )
    sources = [image_of(images[index]) for index in usable.tolist()]
    samples = SampleTable(
        Paths.of(source.path for source in sources),
        Places.of(source.place for source in sources),
        found.sizes[usable].astype(np.int32),
        starts_of(found.num_objects[usable]),
        found.class_index,  # an image that is left out has none
        found.boxes_cxcywh_norm,
        found.polygons if len(found.points_norm) else None,
    )
    return ScanReport(samples, problems)


def image_of(source: Path | ImageSource) -> ImageSource:
    """Return an image source; a path becomes an `ImageFile`."""
    return ImageFile(source) if isinstance(source, Path) else source


def _scan_one(image: ImageSource, num_classes: int, max_pixels: int) -> Scanned:
    try:
        size = read_as(image.path, partial(image.read_size, max_pixels))
        found = image.read_labels(num_classes, size)
    except BrokenImageError as error:
        return Scanned((0, 0), None, f"{image.path}: left out: {error}")
    except BrokenLabelError as error:
        return Scanned((0, 0), None, f"{image.path}: left out: {image.labels_at}: {error}")
    problem = f"{image.labels_at}: {found.removed} removed" if found.removed else ""
    return Scanned(size, found, problem)


def _first_lines(problems: Sequence[str]) -> str:
    hidden = len(problems) - _SHOWN_PROBLEMS
    more = [f"... and {hidden} more"] if hidden > 0 else []
    return "\n".join([*map(printable, problems[:_SHOWN_PROBLEMS]), *more])
