"""How far the rows that a file predicts are from those of the model.

Before: `verify.py` ran both on the same images. After: the file's line on screen, or its fault.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Tolerance(NamedTuple):
    """How far a file may be from the model."""

    row_scores: float  # scores of any row
    row_pixels: float  # centre and size of any box
    scores: float  # of what is found
    iou: float  # above it, two boxes are one,
    pixels: float  # as they are with sides as close as this: thin boxes hardly overlap
    others: float  # coefficients and prototypes of all rows, as a part of the largest of them
    masks: float = 0.0  # the least IoU of the masks of what is found


# Measured on coco256 with the public YOLOv5n at 640 px. In float32 rows differ by up to 1e-5 and
# 0.01 px; another compiler of the same layers may do ten times worse. In float16 it is 0.018 and
# 13 px, of boxes with low scores as wide as the image; what is found differs by up to 0.01 and
# 1.5 px, and overlaps by more than 0.97. Int8 is judged by its figures on --data,
# its masks by these alone.
TOLERANCES = {
    "float32": Tolerance(
        row_scores=1e-3, row_pixels=0.1, scores=1e-3, iou=0.99, pixels=0.1, others=1e-3, masks=0.98
    ),
    "float16": Tolerance(
        row_scores=0.1, row_pixels=64, scores=0.02, iou=0.9, pixels=4, others=0.1, masks=0.9
    ),
    "int8": Tolerance(row_scores=1, row_pixels=np.inf, scores=1, iou=0.5, pixels=16, others=np.inf),
}
# Of a file that resizes images. Grey levels are rounded otherwise than by OpenCV, which moves rows
# by up to 0.054 and 16 px, and what is found by 0.02 and an overlap of 0.9.
RESIZED = Tolerance(
    row_scores=0.3, row_pixels=np.inf, scores=0.05, iou=0.8, pixels=8, others=np.inf
)


class Part(NamedTuple):
    """Columns of a row that are compared together."""

    name: str
    columns: slice
    unit: str


BOX, SCORES = Part("box", slice(0, 4), " px"), Part("score", slice(4, None), "")


def largest_difference(found: np.ndarray, expected: np.ndarray, part: Part) -> float:
    """Return the largest difference of rows (B, N, 5 + C); NaN when one of them is NaN."""
    return float(np.abs(found[..., part.columns] - expected[..., part.columns]).max())


def fault_of_rows(found: np.ndarray, expected: np.ndarray, part: Part, most: float) -> str:
    """Return where rows (B, N, 5 + C) are furthest apart, if that is too far; else ""."""
    theirs, ours = found[..., part.columns], expected[..., part.columns]
    difference = np.abs(theirs - ours)
    worst = np.unravel_index(difference.argmax(), difference.shape)  # that of a NaN, if any is
    if difference[worst] <= most:
        return ""
    return (
        f"row {worst[1]} of image {worst[0]}: a {part.name} of {theirs[worst]:.6g}{part.unit}, the "
        f"model's is {ours[worst]:.6g}{part.unit}; a difference of at most {most:g}{part.unit} is "
        "accepted"
    )
