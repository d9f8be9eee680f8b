"""One image and its labels -> what training makes of them, and what is wrong.

Before: `splits.images_of`. After: `checking.py`, which does this for all images, in threads.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from utils.data.check.kinds import Finding
from utils.data.check.rows import Row, has_label_file, label_bytes, read_rows
from utils.data.image.being_read import read_as
from utils.data.image.decoding import OtherSizeError, choose_reduction, decode_bytes
from utils.data.image.fingerprint import NO_FINGERPRINT, UNKNOWN, Fingerprint, fingerprint_of
from utils.data.image.header import BrokenImageError, check_size, read_header
from utils.data.image.limits import MAX_IMAGE_BYTES, MAX_PIXELS
from utils.data.image.orientation import UPRIGHT
from utils.data.records.reading import read_record
from utils.data.sources.class_folders import ClassImage
from utils.data.sources.fingerprints import MAX_PIXELS as MOST_DECODED
from utils.data.sources.label_file import BrokenLabelError
from utils.data.sources.labels import ImageSource
from utils.errors import DatasetError
from utils.files.regular import open_regular, read_bytes

SMALL = 64  # pixels of the long side, to see whether an image can be decoded


class CheckedImage(NamedTuple):
    """An image and the objects on it that training uses."""

    split: str
    source: ImageSource
    size: tuple[int, int] | None  # (height, width) in pixels; None where it cannot be read
    is_used: bool  # by a training; else it is left out
    class_index: np.ndarray  # (M,) int64
    boxes_cxcywh_norm: np.ndarray  # (M, 4) float32
    fingerprint: Fingerprint
    num_outlines: int = 0  # objects with a polygon


def inspect(
    split: str, source: ImageSource, num_classes: int, max_pixels: int = MAX_PIXELS
) -> tuple[CheckedImage, list[Finding]]:
    """Return an image with what is used of it, and all that is wrong with it and its labels.

    Args:
        max_pixels: of an image; training leaves out a larger one.
    """
    size, fault = _read_size(source, max_pixels)
    if size is None:
        image = _without_objects(split, source, None)
        return image, [Finding(fault[0], split, str(source.path), fault[1])]
    found = list(_label_findings(split, source, num_classes, size))
    fingerprint, fault = _look_at(source, size)
    # Of a class as a whole, nothing lies where it was drawn.
    if fault[0] and not (fault[0] == "turned" and isinstance(source, ClassImage)):
        found.append(Finding(fault[0], split, str(source.path), fault[1]))
    if fault[0] == "truncated_image":
        return _without_objects(split, source, size, fingerprint), found
    try:
        labels = source.read_labels(num_classes, size)
    except BrokenLabelError as error:
        if not found:  # what training refuses is told, whatever it is
            found.append(Finding("broken_label", split, source.labels_at, str(error)))
        return _without_objects(split, source, size, fingerprint), found
    objects = labels.class_index, labels.boxes_cxcywh_norm
    polygons = labels.polygons_norm
    num_outlines = 0 if polygons is None else int(np.count_nonzero(polygons.num_points))
    return CheckedImage(split, source, size, True, *objects, fingerprint, num_outlines), found


def image_bytes(source: ImageSource) -> np.ndarray:
    """Return the bytes of an image, (N,) uint8; raise BrokenImageError."""
    try:
        if source.place is not None:
            return read_record(source.place)
        return np.frombuffer(read_bytes(source.path, MAX_IMAGE_BYTES), np.uint8)
    except OSError as error:
        raise BrokenImageError(error.strerror or str(error)) from error
    except DatasetError as error:
        raise BrokenImageError(str(error)) from error


def _read_size(
    source: ImageSource, max_pixels: int
) -> tuple[tuple[int, int] | None, tuple[str, str]]:
    """Return (height, width) of an image; or None, and the kind of fault and its text."""
    try:
        return read_as(source.path, partial(source.read_size, max_pixels)), ("", "")
    except BrokenImageError as error:
        return None, (_kind_of_fault(source, max_pixels), str(error))


def _kind_of_fault(source: ImageSource, max_pixels: int) -> str:
    """Return the kind of an image that training leaves out."""
    if source.place is not None:  # its header is not read, only the size in the index
        return "image_size"
    if not os.path.exists(source.path):
        return "missing_image"
    try:
        with open_regular(source.path, MAX_IMAGE_BYTES) as file:
            size = read_header(file).size
    except (OSError, BrokenImageError):
        return "unreadable_image"
    return "truncated_image" if _is_accepted(size, max_pixels) else "image_size"


def _is_accepted(size: tuple[int, int], max_pixels: int) -> bool:
    try:
        check_size(size, max_pixels)
    except BrokenImageError:
        return False
    return True


def _look_at(source: ImageSource, size: tuple[int, int]) -> tuple[Fingerprint, tuple[str, str]]:
    """Return the fingerprint of an image, and what is found in its bytes: a kind and a text."""
    try:
        return read_as(source.path, partial(_fingerprint, source, size))
    except (BrokenImageError, OtherSizeError) as error:
        return NO_FINGERPRINT, ("truncated_image", str(error))


def _fingerprint(source: ImageSource, size: tuple[int, int]) -> tuple[Fingerprint, tuple[str, str]]:
    content = image_bytes(source)
    found = fingerprint_of(content, MOST_DECODED)
    # It is flat, or cannot be decoded, which an error tells. Large ones would take much memory.
    if found.look == UNKNOWN and size[0] * size[1] <= MOST_DECODED:
        decode_bytes(content, size, choose_reduction(size, SMALL))
    if read_header(io.BytesIO(content.data)).orientation == UPRIGHT:
        return found, ("", "")
    return found, ("turned", f"shown as {size[1]}x{size[0]} px")


def _label_findings(
    split: str, source: ImageSource, num_classes: int, size: tuple[int, int]
) -> Iterator[Finding]:
    """Yield what is wrong with the labels of an image."""
    for row in read_rows(source, num_classes, size):
        if row.kind:
            yield _of_row(split, source, row)
    if has_no_labels(source):
        yield Finding("no_label_file", split, str(source.path), f"there is no {source.labels_at}")


def has_no_labels(source: ImageSource) -> bool:
    """Return whether an image lacks a label file, and nothing else says what it shows."""
    try:
        return has_label_file(source) and label_bytes(source) is None
    except BrokenLabelError:
        return False


def _of_row(split: str, source: ImageSource, row: Row) -> Finding:
    where = ": ".join(filter(None, [source.labels_at, row.place]))
    return Finding(row.kind, split, where, row.fault, box_xyxy_norm=row.box_xyxy_norm)


def _without_objects(
    split: str,
    source: ImageSource,
    size: tuple[int, int] | None,
    fingerprint: Fingerprint = NO_FINGERPRINT,
) -> CheckedImage:
    none = np.zeros(0, np.int64), np.zeros((0, 4), np.float32)
    return CheckedImage(split, source, size, False, *none, fingerprint)
