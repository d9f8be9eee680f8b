"""An image file with its labels, read into memory.

Before: `labels.scan_samples`. After: `mosaic` and `augment` in training, `batches` in validation.
"""

from __future__ import annotations

from typing import NamedTuple

import cv2
import numpy as np

from utils.boxes import cxcywh_to_xyxy
from utils.data.image_bytes import read_image_bytes
from utils.data.image_files import DatasetError
from utils.data.labels import Sample
from utils.data.letterbox import Letterbox, letterbox


class LabelledImage(NamedTuple):
    """An image and its boxes, both in the image's own pixels."""

    image: np.ndarray  # (H, W, 3) uint8, BGR
    class_index: np.ndarray  # (M,) int64
    boxes_xyxy: np.ndarray  # (M, 4) float64

    @property
    def size(self) -> tuple[int, int]:
        """(height, width)."""
        return self.image.shape[0], self.image.shape[1]


def read_image(sample: Sample) -> LabelledImage:
    """Decode a sample's image and put its boxes into pixels.

    Raises:
        DatasetError: the image cannot be read or decoded, or no longer has the size of the scan.
    """
    image = cv2.imdecode(read_image_bytes(sample), cv2.IMREAD_COLOR)
    if image is None:
        raise DatasetError(f"{sample.image_path}: the image cannot be decoded; repair or remove it")
    if image.shape[:2] != (sample.height, sample.width):
        raise DatasetError(
            f"{sample.image_path}: the image is {image.shape[1]}x{image.shape[0]} px, but was "
            f"{sample.width}x{sample.height} px when the dataset was scanned; start again"
        )
    size = np.array([sample.width, sample.height, sample.width, sample.height], np.float64)
    return LabelledImage(image, sample.class_index, cxcywh_to_xyxy(sample.boxes_cxcywh_norm * size))


def letterbox_labelled(item: LabelledImage, placement: Letterbox) -> LabelledImage:
    """Letterbox an image and move its boxes with it."""
    image = letterbox(item.image, placement)
    return LabelledImage(image, item.class_index, placement.to_input(item.boxes_xyxy))
