"""Boxes and outlines in NumPy; outlines of different lengths lie in two arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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


def starts_of(lengths: np.ndarray) -> np.ndarray:
    """Return the start of each of K rows, and the end of the last, (K + 1,) int64."""
    return np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)


def rows_of(starts: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Concatenate range(starts[i], starts[i + 1]) over the indices."""
    counts = np.diff(starts)[indices]
    own = starts_of(counts)
    return np.arange(own[-1]) + np.repeat(starts[indices] - own[:-1], counts)


@dataclass(frozen=True, eq=False)  # == on arrays is ambiguous
class Polygons:
    """The outlines of M objects, concatenated; an object without an outline has no points.

    Outlines are closed. None in place of Polygons: no object has an outline.
    """

    points_xy: np.ndarray  # (P, 2) floats
    starts: np.ndarray  # (M + 1,) int64: object i has points_xy[starts[i] : starts[i + 1]]

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def num_points(self) -> np.ndarray:
        """The number of points per object, (M,) int64."""
        return np.diff(self.starts)

    def outline(self, index: int) -> np.ndarray:
        return self.points_xy[self.starts[index] : self.starts[index + 1]]

    def range(self, first: int, end: int) -> Polygons | None:
        """Return the objects from `first` up to `end` as views; None if they have no points."""
        starts = self.starts[first : end + 1]
        if starts[0] == starts[-1]:
            return None
        return Polygons(self.points_xy[starts[0] : starts[-1]], starts - starts[0])

    def select(self, objects: np.ndarray) -> Polygons:
        chosen = np.arange(len(self))[objects]
        points = self.points_xy[rows_of(self.starts, chosen)]
        return Polygons(points, starts_of(self.num_points[chosen]))

    def moved(self, scale_xy: Sequence[float], offset_xy: Sequence[float] = (0, 0)) -> Polygons:
        """Scale x and y, then add the offsets; float64."""
        return Polygons(self.points_xy * np.array(scale_xy) + np.array(offset_xy), self.starts)

    def mirrored(self, axis: int, length: float) -> Polygons:
        """Mirror within a length: x for axis 0, y for axis 1."""
        points = self.points_xy.copy()
        points[:, axis] = length - points[:, axis]
        return Polygons(points, self.starts)


def without_outlines(num_objects: int) -> Polygons:
    """Return this number of objects without points, float32."""
    return Polygons(np.zeros((0, 2), np.float32), np.zeros(num_objects + 1, np.int64))


def join_polygons(parts: Sequence[tuple[Polygons | None, int]]) -> Polygons | None:
    """Concatenate sets of objects, each with its number; None if none has an outline."""
    known = [polygons for polygons, _ in parts if polygons is not None]
    if not known:
        return None
    counts = [
        np.zeros(num_objects, np.int64) if polygons is None else polygons.num_points
        for polygons, num_objects in parts
    ]
    points = np.concatenate([polygons.points_xy for polygons in known])
    return Polygons(points, starts_of(np.concatenate(counts)))


def join_parts(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Join several outlines (N, 2), including holes, into one that encloses the same, (K, 2).

    Lines traversed in both directions connect the parts. Takes linear time.
    """
    if len(parts) == 1:
        return parts[0]
    there: list[np.ndarray] = []
    back: list[np.ndarray] = []
    entry = 0
    for part, following in zip(parts[:-1], parts[1:], strict=True):
        leave = _nearest(part, following[0])
        ring = np.roll(part, -entry, axis=0)
        turn = (leave - entry) % len(part)
        there.append(ring[: turn + 1])
        back += [ring[:1], ring[turn:]]  # reversed: the rest after `leave`, then the entry
        entry = _nearest(following, part[leave])
    last = np.roll(parts[-1], -entry, axis=0)
    return np.concatenate([*there, last, last[:1], *reversed(back)])[:-1]


def _nearest(points_xy: np.ndarray, place_xy: np.ndarray) -> int:
    with np.errstate(invalid="ignore", over="ignore"):  # for NaN any point will do
        return int(((points_xy - place_xy) ** 2).sum(1).argmin())
