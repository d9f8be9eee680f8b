"""An image file with its labels, read into memory.

Before: `labels.scan_samples`. After: `tiles` and `augment` in training, `batches` in validation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import cv2
import numpy as np

from utils.boxes import cxcywh_to_xyxy
from utils.data.image.file_bytes import read_image_bytes
from utils.data.image.jpeg import read_header, shorten
from utils.data.image.letterbox import Letterbox, letterbox
from utils.data.sources.labels import Sample
from utils.errors import DatasetError

_REDUCED = {
    1: cv2.IMREAD_COLOR,
    2: cv2.IMREAD_REDUCED_COLOR_2,
    4: cv2.IMREAD_REDUCED_COLOR_4,
    8: cv2.IMREAD_REDUCED_COLOR_8,
}


class LabelledImage(NamedTuple):
    """An image and its boxes, both in the image's own pixels."""

    image: np.ndarray  # (H, W, 3) uint8, BGR
    class_index: np.ndarray  # (M,) int64
    boxes_xyxy: np.ndarray  # (M, 4) float64

    @property
    def size(self) -> tuple[int, int]:
        """(height, width)."""
        return self.image.shape[0], self.image.shape[1]


class Picture(NamedTuple):
    """An image that is decoded when it is asked for, with its boxes in its own pixels."""

    size: tuple[int, int]  # (height, width) of the file
    class_index: np.ndarray  # (M,) int64
    boxes_xyxy: np.ndarray  # (M, 4) float64, in pixels of the file
    reduction: int  # 1, 2, 4 or 8: the decoded image is so many times smaller
    # From the number of rows that are needed to an image (H, W, 3) that has at least these.
    decode: Callable[[int], np.ndarray]

    @property
    def decoded_size(self) -> tuple[int, int]:
        """(height, width) of the decoded image."""
        return reduced_size(self.size, self.reduction)


def reduced_size(size: tuple[int, int], reduction: int) -> tuple[int, int]:
    """(height, width) of an image decoded at a fraction of its size: rounded up."""
    return -(-size[0] // reduction), -(-size[1] // reduction)


def choose_reduction(size: tuple[int, int], long_side: int) -> int:
    """The largest of 1, 2, 4 and 8 at which a picture keeps a long side of at least so much."""
    return max(
        reduction for reduction in _REDUCED if reduction * long_side <= max(long_side, *size)
    )


def pixel_boxes(sample: Sample) -> np.ndarray:
    """(M, 4) float64 xyxy boxes in pixels of the file."""
    size = np.array([sample.width, sample.height, sample.width, sample.height], np.float64)
    return cxcywh_to_xyxy(sample.boxes_cxcywh_norm * size)


def read_image(sample: Sample) -> LabelledImage:
    """Decode a sample's image and put its boxes into pixels.

    Raises:
        DatasetError: the image cannot be read or decoded, or no longer has the size of the scan.
    """
    return LabelledImage(decode(sample), sample.class_index, pixel_boxes(sample))


def decode(sample: Sample, reduction: int = 1, rows: int | None = None) -> np.ndarray:
    """Decode a sample's image, (H, W, 3) uint8 BGR.

    Args:
        sample: from the scan of the dataset.
        reduction: 1, 2, 4 or 8: so many times smaller, each pixel an average. JPEGs are decoded
            at that size, which takes less time.
        rows: how many are needed at that size; there may be more, None stands for all.

    Raises:
        DatasetError: the file cannot be decoded, or no longer has the size of the scan.
    """
    content = read_image_bytes(sample)
    height, width = reduced_size((sample.height, sample.width), reduction)
    needed = height if rows is None else min(rows, height)
    header = read_header(content)
    if header is not None and needed < height:
        content = shorten(content, header, needed * reduction)
    # Turned, the squares that a decoder averages over need not start at the left and the top.
    averages = header is not None and header.is_upright
    try:
        image = cv2.imdecode(content, _REDUCED[reduction if averages else 1])
    except cv2.error:  # an empty file, or more pixels than OpenCV accepts
        image = None
    if image is not None and not averages and reduction > 1:
        image = average_squares(image, reduction)
    if image is not None and image.shape[1] == width and needed <= image.shape[0] <= height:
        return image
    if reduction > 1 or rows is not None:  # the whole tells what is wrong
        return average_squares(decode(sample), reduction)
    if image is None:
        raise DatasetError(f"{sample.image_path}: the image cannot be decoded; repair or remove it")
    was_read, next_step = "scanned", "start again"
    if sample.record is not None:
        was_read, next_step = "packed", "pack the dataset again"
    raise DatasetError(
        f"{sample.image_path}: the image is {image.shape[1]}x{image.shape[0]} px, but was "
        f"{sample.width}x{sample.height} px when the dataset was {was_read}; {next_step}"
    )


def average_squares(image: np.ndarray, reduction: int) -> np.ndarray:
    """Means over squares of pixels; the last row and column are repeated to fill the last ones."""
    height, width = image.shape[:2]
    image = cv2.copyMakeBorder(
        image, 0, -height % reduction, 0, -width % reduction, cv2.BORDER_REPLICATE
    )
    size_wh = image.shape[1] // reduction, image.shape[0] // reduction
    return cv2.resize(image, size_wh, interpolation=cv2.INTER_AREA)


def letterbox_labelled(item: LabelledImage, placement: Letterbox) -> LabelledImage:
    """Letterbox an image and move its boxes with it."""
    image = letterbox(item.image, placement)
    return LabelledImage(image, item.class_index, placement.to_input(item.boxes_xyxy))
