"""Box formats and overlaps in NumPy."""

from __future__ import annotations

import numpy as np


def cxcywh_to_xyxy(boxes_cxcywh: np.ndarray) -> np.ndarray:
    """Convert (..., 4) centre and size to left, top, right, bottom; keep unit and float dtype."""
    # Column by column: NumPy takes twice as long on (..., 2).
    x, y, width, height = (boxes_cxcywh[..., column] for column in range(4))
    two = boxes_cxcywh.dtype.type(2)  # NumPy 1 promotes a scalar divided by 2 to float64
    width, height = width / two, height / two
    return np.stack((x - width, y - height, x + width, y + height), axis=-1)


def xyxy_to_cxcywh(boxes_xyxy: np.ndarray) -> np.ndarray:
    """Convert (..., 4) left, top, right, bottom to centre and size; keep unit and float dtype."""
    top_left, bottom_right = boxes_xyxy[..., 0:2], boxes_xyxy[..., 2:4]
    return np.concatenate(((top_left + bottom_right) / 2, bottom_right - top_left), axis=-1)


def corners_of(boxes_xyxy: np.ndarray) -> np.ndarray:
    """Return the corners of boxes (..., 4), clockwise from the top left one, (..., 4, 2)."""
    return boxes_xyxy[..., [0, 1, 2, 1, 2, 3, 0, 3]].reshape(*boxes_xyxy.shape, 2)


def clip_boxes(boxes_xyxy: np.ndarray, image_size: tuple[int, int]) -> np.ndarray:
    """Return boxes (K, 4) clipped to an image of (height, width), pixels."""
    height, width = image_size
    limits = np.array((width, height, width, height), dtype=boxes_xyxy.dtype)
    return np.clip(boxes_xyxy, 0, limits)


def covered_parts(boxes_xyxy: np.ndarray, covers_xyxy: np.ndarray) -> np.ndarray:
    """Return the fraction of each box (M, 4) hidden by each cover (N, 4), (M, N); 0 if empty."""
    boxes = boxes_xyxy[:, None]
    low = np.maximum(boxes[..., :2], covers_xyxy[:, :2])
    high = np.minimum(boxes[..., 2:], covers_xyxy[:, 2:])
    area = (boxes[..., 2:] - boxes[..., :2]).prod(axis=2)
    hidden = (high - low).clip(0).prod(axis=2)
    return np.divide(hidden, area, out=np.zeros(hidden.shape), where=area > 0)


def pairwise_iou(
    boxes_a_xyxy: np.ndarray, boxes_b_xyxy: np.ndarray, b_is_crowd: np.ndarray | None = None
) -> np.ndarray:
    """Return the IoU of every pair of boxes of two sets.

    Args:
        boxes_a_xyxy: (N, 4), any unit.
        boxes_b_xyxy: (M, 4), same unit.
        b_is_crowd: (M,) bool, boxes around many objects: for these, the covered fraction of box a
            instead of the IoU, as in COCO.

    Returns:
        (N, M) float64 in [0, 1]; 0 for boxes that only touch or have no area.
    """
    # (M, N), because fewer, longer rows are faster in NumPy.
    left_a, top_a, width_a, height_a = _corner_and_size(boxes_a_xyxy)
    left_b, top_b, width_b, height_b = (x[:, None] for x in _corner_and_size(boxes_b_xyxy))
    # The right edge is left + width, as in pycocotools: rounding may make it differ from the given
    # edge, which can change whether an IoU exceeds a threshold.
    overlap_width = np.minimum(left_a + width_a, left_b + width_b) - np.maximum(left_a, left_b)
    overlap_height = np.minimum(top_a + height_a, top_b + height_b) - np.maximum(top_a, top_b)
    overlap = (overlap_width > 0) & (overlap_height > 0)
    intersection = np.where(overlap, overlap_width * overlap_height, 0.0)
    union = width_a * height_a + width_b * height_b - intersection
    if b_is_crowd is not None:
        union = np.where(b_is_crowd[:, None], width_a * height_a, union)
    return np.divide(intersection, union, out=intersection, where=intersection > 0).T


def _corner_and_size(boxes_xyxy: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return left, top, width, height of boxes (N, 4), each (N,) float64."""
    left, top, right, bottom = (edge.astype(np.float64) for edge in boxes_xyxy.T)
    return left, top, right - left, bottom - top
