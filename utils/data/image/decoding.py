"""The bytes of an image file -> pixels, and an image with its boxes, decoded or still to be."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import NamedTuple

import cv2
import numpy as np

from utils.data.image.header import BrokenImageError, ImageHeader, read_header
from utils.data.image.letterbox import Letterbox, letterbox
from utils.data.image.orientation import UPRIGHT, turned_upright
from utils.data.image.pillow_image import as_bgr, open_image
from utils.polygons import Polygons

# A progressive JPEG has 10 scans or so. Each takes a few bytes and, here, 1.2 ns a pixel.
MIN_SCANS, MAX_SCANNED_PIXELS = 20, 4_000_000_000
_SCAN_START = re.compile(rb"\xff\xda")
_AS_STORED = cv2.IMREAD_IGNORE_ORIENTATION
REDUCTIONS = {
    1: cv2.IMREAD_COLOR | _AS_STORED,
    2: cv2.IMREAD_REDUCED_COLOR_2 | _AS_STORED,
    4: cv2.IMREAD_REDUCED_COLOR_4 | _AS_STORED,
    8: cv2.IMREAD_REDUCED_COLOR_8 | _AS_STORED,
}


class OtherSizeError(Exception):
    """The size (height, width) of an image where another is expected."""

    def __init__(self, size: tuple[int, int]):
        super().__init__(size)
        self.size = size


def reduced_size(size: tuple[int, int], reduction: int) -> tuple[int, int]:
    """Return (height, width) of an image decoded at a fraction of its size: rounded up."""
    return -(-size[0] // reduction), -(-size[1] // reduction)


def choose_reduction(size: tuple[int, int], long_side: int) -> int:
    """Return the largest of 1, 2, 4 and 8 that keeps the long side at `long_side` or more."""
    return max(
        reduction for reduction in REDUCTIONS if reduction * long_side <= max(long_side, *size)
    )


def decode_bytes(content: np.ndarray, size: tuple[int, int], reduction: int = 1) -> np.ndarray:
    """Decode an image file, (H, W, 3) uint8 BGR: a JPEG or plain PNG by OpenCV, others by Pillow.

    Args:
        content: (N,) uint8, of the whole file.
        size: (height, width) that the file must have; no other is decoded.
        reduction: 1, 2, 4 or 8 times smaller; each pixel is an average. JPEGs are decoded
            at that size, which takes less time.

    Raises:
        OtherSizeError: the header states another size.
        BrokenImageError: it cannot be decoded, or not to the size that its header states.
    """
    header = read_header(io.BytesIO(content.data))
    if header.size != size:
        raise OtherSizeError(header.size)
    if header.may_repeat_scans:
        _check_scans(content, size)
    # In a turned image the squares that a decoder averages need not start at the left and top.
    decoded_smaller = header.kind == "JPEG" and header.orientation == UPRIGHT
    try:
        image = turned_upright(
            _decode(content, header, reduction if decoded_smaller else 1), header.orientation
        )
        if not decoded_smaller:
            image = average_squares(image, reduction)
    except Exception as error:  # Pillow promises no list of what a damaged image raises
        raise BrokenImageError("damaged after its header") from error
    if image.shape[:2] != reduced_size(size, reduction):
        raise BrokenImageError("damaged after its header")
    return image


def _check_scans(content: np.ndarray, size: tuple[int, int]) -> None:
    """Raise BrokenImageError for a JPEG that goes over its pixels more often than any encoder."""
    num_scans = len(_SCAN_START.findall(content.data))
    if num_scans > max(MIN_SCANS, MAX_SCANNED_PIXELS // (size[0] * size[1])):
        raise BrokenImageError(f"{num_scans} scans over {size[1]}x{size[0]} px")


def _decode(content: np.ndarray, header: ImageHeader, reduction: int) -> np.ndarray:
    """Return the image as it is stored, by Pillow perhaps upright; ValueError if it is damaged."""
    if not header.by_opencv:
        image = open_image(header.kind, io.BytesIO(content.data))
        image.load()  # here, so that its mode is that of the pixels
        return as_bgr(image)
    found = cv2.imdecode(content, REDUCTIONS[reduction])
    if found is None:
        raise ValueError("not decoded")
    return found


def average_squares(image: np.ndarray, reduction: int) -> np.ndarray:
    """Average over squares of pixels; the last row and column are repeated to fill the squares."""
    if reduction == 1:
        return image
    bottom, right = -image.shape[0] % reduction, -image.shape[1] % reduction
    image = cv2.copyMakeBorder(image, 0, bottom, 0, right, cv2.BORDER_REPLICATE)
    size_wh = image.shape[1] // reduction, image.shape[0] // reduction
    return cv2.resize(image, size_wh, interpolation=cv2.INTER_AREA)


class LabelledImage(NamedTuple):
    """An image and its boxes, both in the image's own pixels."""

    image: np.ndarray  # (H, W, 3) uint8, BGR
    class_index: np.ndarray  # (M,) int64
    boxes_xyxy: np.ndarray  # (M, 4) float64
    polygons: Polygons | None = None  # float64, of the M objects, if any has one

    @property
    def size(self) -> tuple[int, int]:
        """(height, width)."""
        return self.image.shape[0], self.image.shape[1]


class SourceImage(NamedTuple):
    """An image that is decoded when it is asked for, with its boxes in its own pixels."""

    size: tuple[int, int]  # (height, width) of the file
    class_index: np.ndarray  # (M,) int64
    boxes_xyxy: np.ndarray  # (M, 4) float64, in pixels of the file
    reduction: int  # 1, 2, 4 or 8: the decoded image is so many times smaller
    decode: Callable[[], np.ndarray]  # returns (H, W, 3) uint8, of decoded_size
    polygons: Polygons | None = (
        None  # float64, of the M objects, if any has one; pixels of the file
    )

    @property
    def decoded_size(self) -> tuple[int, int]:
        """(height, width) of the decoded image."""
        return reduced_size(self.size, self.reduction)


def letterbox_labelled(item: LabelledImage, placement: Letterbox) -> LabelledImage:
    """Letterbox an image and move its boxes and polygons with it."""
    image, polygons = letterbox(item.image, placement), item.polygons
    if polygons is not None:
        polygons = polygons.moved(placement.scale[::-1], placement.padding[::-1])
    return LabelledImage(image, item.class_index, placement.to_input(item.boxes_xyxy), polygons)
