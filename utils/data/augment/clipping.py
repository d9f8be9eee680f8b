"""Polygons through a warp: cut at the edges of what is seen, and the boxes around what is left.

A straight edge stays straight in any warp, so that corners are all that is moved, and points are
added only where an edge is cut.
"""

from __future__ import annotations

import numpy as np

from utils.polygons import Polygons, starts_of

_EPSILON = 1e-16


def warp_polygons(
    polygons: Polygons, matrix: np.ndarray, output_size: tuple[int, int], margin: int = 0
) -> Polygons:
    """Warp polygons and cut them at the edges of an output.

    Args:
        polygons: pixels.
        matrix: (3, 3), to pixels of the output.
        output_size: (height, width).
        margin: how many pixels outside these edges the cuts are.

    Returns:
        Float64. A concave polygon that is cut into pieces stays one: its pieces are joined along
        the cuts. An object that is not seen has no points left.

    Source: Sutherland and Hodgman 1974, "Reentrant polygon clipping".
    """
    height, width = output_size
    x, y = polygons.points_xy.T
    points = np.stack([row[0] * x + row[1] * y + row[2] for row in matrix.tolist()], axis=1)
    owner = np.repeat(np.arange(len(polygons)), polygons.num_points)
    # Cut before the division: what is behind the viewer lies outside of one edge at least.
    left, right = (1, 0, margin), (-1, 0, width + margin)
    top, bottom = (0, 1, margin), (0, -1, height + margin)
    for inward in (left, right, top, bottom):
        points, owner = _cut(points, owner, inward)
    points_xy = points[:, :2] / np.maximum(points[:, 2:], _EPSILON)
    points_xy = points_xy.clip(-margin, (width + margin, height + margin))
    return Polygons(points_xy, starts_of(np.bincount(owner, minlength=len(polygons))))


def _cut(
    points: np.ndarray, owner: np.ndarray, inward: tuple[int, int, int]
) -> tuple[np.ndarray, np.ndarray]:
    """Keep what lies on the inner side of an edge.

    Args:
        points: (P, 3) homogeneous, those of a polygon in a row.
        owner: (P,) index of the polygon of each, ascending.
        inward: of the edge: its product with a point is not negative inside.
    """
    distance = inward[0] * points[:, 0] + inward[1] * points[:, 1] + inward[2] * points[:, 2]
    inside = distance >= 0
    if inside.all():
        return points, owner
    following = _following(owner)
    crosses = np.flatnonzero(inside != inside[following])
    after = following[crosses]
    part = distance[crosses] / (distance[crosses] - distance[after])
    num_kept = inside.astype(np.int64)
    num_kept[crosses] += 1  # where the edge behind a point is cut
    place = np.cumsum(num_kept) - num_kept
    kept = np.empty((int(num_kept.sum()), 3))
    kept[place[inside]] = points[inside]
    cut = points[crosses] + part[:, None] * (points[after] - points[crosses])
    kept[place[crosses] + inside[crosses]] = cut
    return kept, np.repeat(owner, num_kept)


def _following(owner: np.ndarray) -> np.ndarray:
    """Return the index of the point after each: after the last of a polygon comes its first."""
    following = np.arange(1, len(owner) + 1)
    last = np.flatnonzero(np.diff(owner, append=-1))
    following[last] = np.concatenate(([0], last[:-1] + 1))[: len(last)]
    return following


def boxes_within(polygons: Polygons, output_size: tuple[int, int]) -> np.ndarray:
    """Return the (M, 4) xyxy boxes around what an output of (height, width) shows of polygons.

    They end where an edge does, where it leaves the output, or at a corner of the output that lies
    in the polygon; all are 0 for an object that is not seen. Source: Liang and Barsky 1984, "A new
    concept and method for line clipping".
    """
    height, width = output_size
    limits = np.array((width, height), np.float64)
    start, owner = polygons.points_xy, np.repeat(np.arange(len(polygons)), polygons.num_points)
    end = start[_following(owner)]
    change = np.where(end == start, _EPSILON, end - start)
    at_zero, at_limit = -start / change, (limits - start) / change
    first = np.minimum(at_zero, at_limit).max(axis=1).clip(min=0)
    last = np.maximum(at_zero, at_limit).min(axis=1).clip(max=1)
    seen = first <= last  # of each edge, from one part of its length to the other
    ends = start[:, None] + np.stack((first, last), axis=1)[..., None] * change[:, None]
    bounds = _Bounds(len(polygons))
    bounds.add(owner[seen], ends[seen].clip(0, limits))
    for y in (0, height):
        crosses = (start[:, 1] <= y) != (end[:, 1] <= y)
        at = start[:, 0] + (y - start[:, 1]) / change[:, 1] * change[:, 0]
        for x in (0, width):
            num_crossed = np.bincount(owner[crosses & (at > x)], minlength=len(polygons))
            covers = np.flatnonzero(num_crossed % 2)
            bounds.add(covers, np.tile((x, y), (len(covers), 1, 1)))
    return bounds.boxes_xyxy()


class _Bounds:
    """The smallest boxes around what is added of M objects."""

    def __init__(self, num_objects: int):
        self._low = np.full((num_objects, 2), np.inf)
        self._high = np.full((num_objects, 2), -np.inf)

    def add(self, owner: np.ndarray, points: np.ndarray) -> None:
        """Add points (N, K, 2) of the objects owner (N,), ascending indices."""
        if len(owner):
            objects, starts = np.unique(owner, return_index=True)
            low = np.minimum.reduceat(points.min(axis=1), starts)
            high = np.maximum.reduceat(points.max(axis=1), starts)
            self._low[objects] = np.minimum(self._low[objects], low)
            self._high[objects] = np.maximum(self._high[objects], high)

    def boxes_xyxy(self) -> np.ndarray:
        """Return the boxes (M, 4), all 0 of an object of which nothing was added."""
        boxes = np.concatenate((self._low, self._high), axis=1)
        return np.where(np.isfinite(boxes), boxes, 0)
