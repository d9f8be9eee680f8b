"""One image and its labels -> what training makes of them, and what is wrong."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from utils.data.check.kinds import Finding
from utils.data.check.rows import is_unlabelled, read_rows
from utils.data.image.being_read import read_as
from utils.data.image.decoding import OtherSizeError, choose_reduction, decode_bytes
from utils.data.image.fingerprint import NO_FINGERPRINT, UNKNOWN, Fingerprint, fingerprint_of
from utils.data.image.header import BrokenImageError, check_size, read_header
from utils.data.image.limits import MAX_IMAGE_BYTES, MAX_PIXELS
from utils.data.image.orientation import UPRIGHT
from utils.data.records.layout import read_record
from utils.data.sources.class_folders import ClassImage
from utils.data.sources.drawn_split import MAX_PIXELS as MOST_DECODED
from utils.data.sources.label_file import BrokenLabelError
from utils.data.sources.labels import ImageSource
from utils.errors import DatasetError
from utils.files.regular import open_regular, read_bytes

SMALL = 64  # pixels of the long side, to see whether an image can be decoded
NO_OBJECTS = np.zeros(0, np.int64), np.zeros((0, 4), np.float32)


class CheckedImage(NamedTuple):
    """An image and the objects on it that training uses."""

    split: str
    source: ImageSource
    size: tuple[int, int] | None  # (height, width) in pixels; None where it cannot be read
    is_used: bool = False  # by a training; else it is left out
    fingerprint: Fingerprint = NO_FINGERPRINT
    class_index: np.ndarray = NO_OBJECTS[0]  # (M,) int64
    boxes_cxcywh_norm: np.ndarray = NO_OBJECTS[1]  # (M, 4) float32
    num_outlines: int = 0  # objects with a polygon


def inspect(
    split: str, source: ImageSource, num_classes: int, max_pixels: int = MAX_PIXELS
) -> tuple[CheckedImage, list[Finding]]:
    """Return an image with what is used of it, and all that is wrong with it and its labels.

    Args:
        max_pixels: of an image; training leaves out a larger one.
    """
    path = str(source.path)
    try:
        size = read_as(source.path, partial(source.read_size, max_pixels))
    except BrokenImageError as error:
        finding = Finding(_kind_of_fault(source, max_pixels), split, path, str(error))
        return CheckedImage(split, source, None), [finding]
    found = list(_label_findings(split, source, num_classes, size))
    try:
        fingerprint, is_turned = read_as(source.path, partial(_look_at, source, size))
    except (BrokenImageError, OtherSizeError) as error:
        finding = Finding("truncated_image", split, path, str(error))
        return CheckedImage(split, source, size), [*found, finding]
    if is_turned and not isinstance(source, ClassImage):  # of a class nothing lies anywhere
        found.append(Finding("turned", split, path, f"shown as {size[1]}x{size[0]} px"))
    try:
        labels = source.read_labels(num_classes, size)
    except BrokenLabelError as error:
        if not found:  # what training refuses is reported, whatever it is
            found.append(Finding("broken_label", split, source.labels_at, str(error)))
        return CheckedImage(split, source, size, False, fingerprint), found
    objects, polygons = (labels.class_index, labels.boxes_cxcywh_norm), labels.polygons_norm
    num_outlines = 0 if polygons is None else int(np.count_nonzero(polygons.num_points))
    return CheckedImage(split, source, size, True, fingerprint, *objects, num_outlines), found


def image_bytes(source: ImageSource) -> np.ndarray:
    """Return the bytes of an image, (N,) uint8; raise BrokenImageError."""
    try:
        if source.place is not None:
            return read_record(source.place)
        return np.frombuffer(read_bytes(source.path, MAX_IMAGE_BYTES), np.uint8)
    except (OSError, DatasetError) as error:
        raise BrokenImageError(getattr(error, "strerror", None) or str(error)) from error


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
    try:
        check_size(size, max_pixels)
    except BrokenImageError:
        return "image_size"
    return "truncated_image"


def _look_at(source: ImageSource, size: tuple[int, int]) -> tuple[Fingerprint, bool]:
    """Return the fingerprint of an image that can be decoded, and whether EXIF turns it."""
    content = image_bytes(source)
    found = fingerprint_of(content, MOST_DECODED)
    # It is flat, or cannot be decoded, which is an error here. Large ones take much memory.
    if found.look == UNKNOWN and size[0] * size[1] <= MOST_DECODED:
        decode_bytes(content, size, choose_reduction(size, SMALL))
    return found, read_header(io.BytesIO(content.data)).orientation != UPRIGHT


def _label_findings(
    split: str, source: ImageSource, num_classes: int, size: tuple[int, int]
) -> Iterator[Finding]:
    """Yield what is wrong with the labels of an image."""
    for row in read_rows(source, num_classes, size):
        if row.kind:
            where = ": ".join(filter(None, [source.labels_at, row.place]))
            yield Finding(row.kind, split, where, row.fault, box_xyxy_norm=row.box_xyxy_norm)
    if is_unlabelled(source):
        yield Finding("no_label_file", split, str(source.path), f"there is no {source.labels_at}")


def count_objects(images: Sequence[CheckedImage], split: str, num_classes: int) -> np.ndarray:
    """Return how many objects of a split training uses, (num_classes,) int64."""
    found = [image.class_index for image in images if image.split == split]
    return np.bincount(np.concatenate([NO_OBJECTS[0], *found]), minlength=num_classes)
