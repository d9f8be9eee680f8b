"""Items -> a batch's images and targets.

Before: `augment/sample.py` in training, `image/labelled.py::letterbox_labelled` in validation.
After: `batches.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import cv2
import numpy as np

from utils.boxes import xyxy_to_cxcywh
from utils.data.image.labelled import LabelledImage
from utils.data.loading.batch import Targets
from utils.errors import DatasetError


def fill_images(
    images: np.ndarray, sample_indices: np.ndarray, make_item: Callable[[int], LabelledImage]
) -> Targets:
    """Make the item of every sample index and write its image into `images`.

    Args:
        images: (B, 3, H, W) uint8, contiguous, overwritten.
        sample_indices: (B,); B may be 0.
        make_item: from a sample index to an image of size (H, W).

    Returns:
        The targets of all items together.
    """
    image_index, class_index = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    boxes = [np.zeros((0, 4), np.float32)]
    for position, sample_index in enumerate(sample_indices.tolist()):
        item = make_item(sample_index)
        for channel in range(3):  # BGR to RGB; three times as fast as assigning a transposed view
            cv2.extractChannel(item.image, 2 - channel, images[position, channel])
        image_index.append(np.full(len(item.class_index), position, np.int64))
        class_index.append(item.class_index)
        boxes.append(_normalise(item))
    return Targets(np.concatenate(image_index), np.concatenate(class_index), np.concatenate(boxes))


def _normalise(item: LabelledImage) -> np.ndarray:
    height, width = item.size
    boxes = xyxy_to_cxcywh(item.boxes_xyxy) / [width, height, width, height]
    return boxes.astype(np.float32)


class _NamedError(RuntimeError):
    """A failure that names its image."""


@contextmanager
def naming_image(image_path: Path) -> Iterator[None]:
    """Add the image's path to any failure inside that does not name an image yet."""
    try:
        yield
    except (DatasetError, _NamedError):
        raise
    except Exception as error:
        raise _NamedError(f"{image_path}: {type(error).__name__}: {error}") from error
