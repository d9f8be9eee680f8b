"""Mistakes in `ops.suppress`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.conformance.judging import Backend
from tests.conformance.wrong.registry import register


def overlaps(boxes: np.ndarray) -> np.ndarray:
    """(N, N) IoU in the dtype of the boxes."""
    sides = np.minimum(boxes[:, None, 2:], boxes[None, :, 2:])
    sides = sides - np.maximum(boxes[:, None, :2], boxes[None, :, :2])
    intersection = sides.clip(0).prod(axis=2)
    area = (boxes[:, 2:] - boxes[:, :2]).prod(axis=1)
    union = area[:, None] + area[None] - intersection
    return np.divide(intersection, union, out=np.zeros_like(union), where=union > 0)


def suppression(
    dtype: str = "float64",
    above: Callable[[np.ndarray, float], np.ndarray] = np.greater,
    removed_boxes_remove: bool = False,
    first: int | None = None,
) -> Any:
    """The greedy rule with one mistake."""

    def build(b: Backend) -> Any:
        def suppress(boxes_xyxy: Any, group: Any, iou_threshold: float, max_kept: int) -> Any:
            b.ops.suppress(boxes_xyxy, group, iou_threshold, max_kept)
            boxes, groups = b.ops.to_numpy(boxes_xyxy)[:first], b.ops.to_numpy(group)[:first]
            meet = above(overlaps(boxes.astype(dtype)), np.float32(iou_threshold).astype(dtype))
            meet &= groups[:, None] == groups[None]
            kept: list[int] = []
            for row in range(len(boxes)):
                rivals = range(row) if removed_boxes_remove else kept
                if not meet[row, list(rivals)].any():
                    kept.append(row)
            return b.ops.tensor(np.array(kept[:max_kept], "int64"))

        return suppress

    return build


def one_group(b: Backend) -> Any:
    def suppress(boxes_xyxy: Any, group: Any, iou_threshold: float, max_kept: int) -> Any:
        b.ops.suppress(boxes_xyxy, group, iou_threshold, max_kept)
        together = b.ops.zeros(group.shape, "int64")
        return b.ops.suppress(boxes_xyxy, together, iou_threshold, max_kept)

    return suppress


def rows_as_if_contiguous(b: Backend) -> Any:
    def take_where(x: Any, condition: Any) -> Any:
        right = b.ops.take_where(x, condition)
        rows = b.ops.tensor(b.ops.to_numpy(x).ravel("F").reshape(x.shape))
        return right if x.ndim < 3 else b.ops.take_where(rows, condition)

    return take_where


register(
    (
        ("ops.take_where", "takes a permuted tensor for a flat one", rows_as_if_contiguous),
        (
            "ops.take_where",
            "takes the other rows",
            lambda b: lambda x, c: b.ops.take_where(x, b.ops.logical_not(c)),
        ),
        ("ops.suppress", "lets all groups meet", one_group),
        ("ops.suppress", "removes at the threshold", suppression(above=np.greater_equal)),
        ("ops.suppress", "computes in float32", suppression(dtype="float32")),
        ("ops.suppress", "lets removed boxes remove", suppression(removed_boxes_remove=True)),
        ("ops.suppress", "gives up after 2,000 boxes", suppression(first=2000)),
        (
            "ops.suppress",
            "ignores how many may be kept",
            lambda b: (
                lambda boxes, group, threshold, max_kept: b.ops.suppress(
                    boxes, group, threshold, max(max_kept, 1000) if max_kept > 0 else max_kept
                )
            ),
        ),
    )
)
