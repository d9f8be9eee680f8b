"""Polygons through a warp: cut at the edges of what is seen, and the boxes around what is left.

Before: `objects.py`. After: the same. A straight edge stays straight in
any warp, so that corners are all that is moved, and points are added only where an edge is cut.
"""

from __future__ import annotations

import numpy as np

from utils.polygons import Polygons, starts_of

_EPSILON = 1e-16


def warp_polygons(polygons: Polygons, matrix: np.ndarray, output_size: tuple[int, int]) -> Polygons:
    """Warp polygons and cut them at the edges of an output.

    Args:
        polygons: pixels.
        matrix: (3, 3), to pixels of the output.
        output_size: (height, width).

    Returns:
        Float64. A concave one that is cut into pieces stays one, joined along the edges. An object
        that is not seen has no points left.

    Source: Sutherland and Hodgman 1974, "Reentrant polygon clipping".
    """
    height, width = output_size
    x, y = polygons.points_xy.T
    points = np.stack([row[0] * x + row[1] * y + row[2] for row in matrix.tolist()], axis=1)
    owner = np.repeat(np.arange(len(polygons)), polygons.num_points)
    # Cut before the division: the part behind the viewer lies on no side of all four edges.
    for inward in ((1, 0, 0), (-1, 0, width), (0, 1, 0), (0, -1, height)):
        points, owner = _cut(points, owner, inward)
    points_xy = points[:, :2] / np.maximum(points[:, 2:], _EPSILON)
    counts = np.bincount(owner, minlength=len(polygons))
    return Polygons(points_xy.clip(0, (width, height)), starts_of(counts))


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
    crosses = inside != inside[following]
    change = np.where(crosses, distance - distance[following], 1)
    crossing = points + (distance / change)[:, None] * (points[following] - points)
    kept = np.stack((inside, crosses), axis=1).ravel()
    both = np.stack((points, crossing), axis=1).reshape(-1, 3)
    return both[kept], np.repeat(owner, 2)[kept]


def _following(owner: np.ndarray) -> np.ndarray:
    """Return the index of the point after each: after the last of a polygon comes its first."""
    last = np.flatnonzero(np.append(owner[1:] != owner[:-1], True))
    following = np.arange(1, len(owner) + 1)
    following[last] = np.concatenate(([0], last[:-1] + 1))
    return following


def boxes_around(polygons: Polygons) -> np.ndarray:
    """Return the (M, 4) xyxy boxes around polygons; 0 of an object without points."""
    boxes = np.zeros((len(polygons), 4))
    has_points = polygons.num_points > 0
    if has_points.any():
        starts = polygons.starts[:-1][has_points]
        boxes[has_points, :2] = np.minimum.reduceat(polygons.points_xy, starts)
        boxes[has_points, 2:] = np.maximum.reduceat(polygons.points_xy, starts)
    return boxes
