"""The labels of a sample as the text of a label file, which reads as the same arrays."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from utils.data.sources.samples import Sample
from utils.polygons import without_outlines

_FEWEST_POINTS = 3  # of a polygon; a line of fewer numbers is a box


class LabelText(NamedTuple):
    """The content of a label file, and what could not be written as it is."""

    content: bytes
    num_moved: int  # outlines of which some point was moved, by a pixel at most
    num_dropped: int  # objects that have only their box


def label_text(sample: Sample) -> LabelText:
    """Return the labels of a sample; classes and boxes are read from it bit for bit.

    A line has a box or an outline, and an outline's box is the smallest around it. Where the box
    of an object differs by a pixel at most, the outline's outermost points are moved to its edges.
    Where it differs by more, the object is written as a box.
    """
    lines: list[str] = []
    moved = dropped = 0
    boxes = sample.boxes_cxcywh_norm.astype(np.float64)
    pixel = 1 / np.array([sample.width, sample.height], np.float64)
    polygons = sample.polygons_norm or without_outlines(len(boxes))
    for index, label in enumerate(sample.class_index.tolist()):
        outline, numbers = polygons.outline(index), boxes[index]
        written = _fitted(outline, numbers, pixel)
        if written is not None:
            moved += bool((written.astype(np.float32) != outline).any())
            numbers = written
        else:
            dropped += len(outline) > 0
        lines.append(" ".join([str(label), *map(repr, numbers.ravel().tolist())]))
    return LabelText("".join(f"{line}\n" for line in lines).encode(), moved, dropped)


def _fitted(outline: np.ndarray, box_cxcywh: np.ndarray, pixel: np.ndarray) -> np.ndarray | None:
    """Return an outline (K, 2) float64 with exactly a box around it; None if that cannot be.

    Args:
        outline: (K, 2) float32.
        box_cxcywh: (4,) float64 of float32 values, of the same unit.
        pixel: (2,) how far a point may be moved, in x and y.
    """
    if len(outline) < _FEWEST_POINTS:
        return None
    points = outline.astype(np.float64)
    for axis in (0, 1):
        values, centre, side = points[:, axis], box_cxcywh[axis], box_cxcywh[axis + 2]
        low, high = outline[:, axis].min(), outline[:, axis].max()
        edges = _edges(low, high, np.float32(centre), np.float32(side))
        if edges is None:
            edges = centre - side / 2, centre + side / 2  # exact: these are float32 values
            if max(abs(edges[0] - low), abs(edges[1] - high)) > pixel[axis]:
                return None
            values = np.clip(values, *edges)
        points[:, axis] = np.select(
            [outline[:, axis] == low, outline[:, axis] == high], edges, values
        )
    return points


def _edges(
    low: np.float32, high: np.float32, centre: np.float32, side: np.float32
) -> tuple[float, float] | None:
    """Return the edges that are rounded to `low` and `high`, and whose box to `centre` and `side`.

    The box was rounded from the edges as they were, and these were rounded too: what is left of
    them gives another box. The four roundings are bounds of the two edges, of their sum and of
    their difference; a pair between the bounds is returned, None if there is none.
    """
    (low_from, low_to), (high_from, high_to) = _rounded_to(low), _rounded_to(high)
    (sum_from, sum_to), (side_from, side_to) = 2 * _rounded_to(centre), _rounded_to(side)
    first = max(low_from, sum_from - high_to, high_from - side_to, (sum_from - side_to) / 2)
    last = min(low_to, sum_to - high_from, high_to - side_from, (sum_to - side_from) / 2)
    left = (first + last) / 2
    first = max(high_from, sum_from - left, side_from + left)
    last = min(high_to, sum_to - left, side_to + left)
    right = (first + last) / 2
    box = np.float32((left + right) / 2), np.float32(right - left)
    read = (np.float32(left), np.float32(right), *box)
    return (left, right) if read == (low, high, centre, side) else None


def _rounded_to(value: np.float32) -> np.ndarray:
    """Return between which float64 numbers all are rounded to a float32, (2,)."""
    ends = np.array([-np.inf, np.inf], np.float32)
    around = np.nextafter(value, ends, dtype=np.float32)
    return (around.astype(np.float64) + float(value)) / 2
