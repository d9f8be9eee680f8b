"""Outlines -> the pixels of a batch's objects, as the loss of a mask head takes them.

Before: the outlines of an image. After: `utils/data/loading/batch.py::TargetMasks`.
Both encodings agree bit for bit with the reference arrays: the corners of an outline are cut down
to whole pixels, its border belongs to it, and a map is made smaller by bilinear interpolation.
"""

from __future__ import annotations

import cv2
import numpy as np

from utils.polygons import Polygons

MAX_SMALL = 255  # objects whose numbers fit into a byte


def index_map(
    polygons: Polygons, size: tuple[int, int], ratio: int
) -> tuple[np.ndarray, np.ndarray]:
    """Draw all objects of an image into one map, the smaller ones over the larger ones.

    Args:
        polygons: M outlines, pixels of an image; one without points has no pixel.
        size: (height, width) of the image.
        ratio: the map is so many times smaller.

    Returns:
        The map (h, w), uint8 or, of more than 255 objects, int32: 0 is background; and value (M,)
        int64: the number of each object in it, from 1 up by decreasing area in the map, in the
        order of the objects where areas are equal.
    """
    masks = separate(polygons, size, ratio)
    areas = masks.sum(axis=(1, 2), dtype=np.int64)
    order = np.argsort(-areas, kind="stable")
    value = np.empty(len(masks), np.int64)
    value[order] = np.arange(1, len(masks) + 1)
    numbers = np.zeros(masks.shape[1:], np.uint8 if len(masks) <= MAX_SMALL else np.int32)
    for index in order.tolist():
        numbers[masks[index] > 0] = value[index]
    return numbers, value


def separate(polygons: Polygons, size: tuple[int, int], ratio: int) -> np.ndarray:
    """Draw each object of an image into a map of its own, (M, h, w) uint8: 1 in the object.

    The arguments are those of `index_map`.
    """
    height, width = size
    small = height // ratio, width // ratio
    masks = np.zeros((len(polygons), *small), np.uint8)
    for index, mask in enumerate(masks):
        # In float32, as labels are stored: a corner on a pixel's edge stays on it.
        corners = polygons.outline(index).astype(np.float32).astype(np.int32)
        if len(corners):
            whole = cv2.fillPoly(np.zeros(size, np.uint8), [corners], (1,))
            mask[:] = cv2.resize(whole, small[::-1], interpolation=cv2.INTER_LINEAR)
    return masks
