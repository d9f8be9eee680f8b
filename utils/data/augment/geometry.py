"""Random affine and perspective transforms, of boxes and outlines too.

A straight edge of a polygon stays straight in any warp, so that corners are all that is moved, and
points are added only where an edge is cut.
"""

import math
from dataclasses import dataclass
from functools import reduce

import numpy as np

from duet.utils.data.image.decoding import Objects
from duet.utils.geometry.boxes import Polygons, starts_of

# The public recipe: an object that is smaller than this, or mostly cut off, teaches nothing.
MIN_SIDE = 2.0
MIN_AREA_RATIO = 0.1
MAX_ASPECT_RATIO = 100.0
_EPSILON = 1e-16
# Pixels outside the output at which polygons are cut: pieces are joined along the cut, and filling
# a polygon fills its edges too.
OUTLINE_MARGIN = 2


@dataclass(frozen=True)
class Warp:
    """One drawn transform: perspective, then rotation with zoom, then shear, about the centre."""

    angle: float = 0.0  # degrees, counter-clockwise
    zoom: float = 1.0
    shear_xy: tuple[float, float] = (0.0, 0.0)  # degrees
    centre_xy: tuple[float, float] = (0.5, 0.5)  # where the centre lands, fraction of the output
    perspective_xy: tuple[float, float] = (0.0, 0.0)  # change of the divisor per pixel

    def matrix(self, canvas_size: tuple[int, int], output_size: tuple[int, int]) -> np.ndarray:
        """Return (3, 3) float64, canvas pixel (x, y, 1) to output pixel; sizes (height, width)."""
        to_centre = np.eye(3)
        to_centre[:2, 2] = -canvas_size[1] / 2, -canvas_size[0] / 2
        perspective = np.eye(3)
        perspective[2, :2] = self.perspective_xy
        cosine = self.zoom * math.cos(math.radians(self.angle))
        sine = self.zoom * math.sin(math.radians(self.angle))
        rotation = np.array([[cosine, sine, 0], [-sine, cosine, 0], [0, 0, 1]])
        shear = np.eye(3)
        shear[0, 1], shear[1, 0] = (math.tan(math.radians(angle)) for angle in self.shear_xy)
        from_centre = np.eye(3)
        from_centre[:2, 2] = (
            self.centre_xy[0] * output_size[1],
            self.centre_xy[1] * output_size[0],
        )
        return reduce(multiply, (from_centre, shear, rotation, perspective, to_centre))


def multiply(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the product of two (3, 3) matrices; `right` is applied first."""
    # Not `@`: BLAS builds differ in the last bit, and pixels must not depend on the NumPy wheel.
    return (left[:, :, None] * right[None, :, :]).sum(axis=1)


def determinant(matrix: np.ndarray) -> float:
    """Return the determinant of a (3, 3) matrix, without LAPACK for the same reason."""
    (a, b, c), (d, e, f), (g, h, i) = matrix.tolist()
    return a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g)


def invert(matrix: np.ndarray) -> np.ndarray:
    (a, b, c), (d, e, f), (g, h, i) = matrix.tolist()
    adjugate = [
        [e * i - f * h, c * h - b * i, b * f - c * e],
        [f * g - d * i, a * i - c * g, c * d - a * f],
        [d * h - e * g, b * g - a * h, a * e - b * d],
    ]
    return np.array(adjugate) / determinant(matrix)


def warp_corners(
    corners_xyxy: tuple[float, float, float, float], matrix: np.ndarray
) -> tuple[float, float, float, float] | None:
    """Return left, top, right, bottom around a warped box; None with a corner behind the viewer."""
    left, top, right, bottom = corners_xyxy
    (a, b, c), (d, e, f), (g, h, i) = matrix.tolist()
    points = [(x, y, g * x + h * y + i) for x in (left, right) for y in (top, bottom)]
    if any(divisor <= 0 for _, _, divisor in points):
        return None
    xs = [(a * x + b * y + c) / divisor for x, y, divisor in points]
    ys = [(d * x + e * y + f) / divisor for x, y, divisor in points]
    return min(xs), min(ys), max(xs), max(ys)


def warp_boxes(boxes_xyxy: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Return (M, 4) float64 boxes around the warped corners of boxes, pixels, not clipped."""
    x, y = boxes_xyxy[:, [0, 2, 2, 0]], boxes_xyxy[:, [1, 1, 3, 3]]
    warped_x, warped_y, divisor = (row[0] * x + row[1] * y + row[2] for row in matrix)
    # A corner behind the viewer counts as one at infinity in the same direction.
    divisor = np.maximum(divisor, _EPSILON)
    points = np.stack((warped_x / divisor, warped_y / divisor), axis=-1)
    return np.concatenate((points.min(axis=1), points.max(axis=1)), axis=1)


def worth_keeping(before_xyxy: np.ndarray, after_xyxy: np.ndarray) -> np.ndarray:
    """Return which boxes still show enough of their object after a transform and clipping.

    Args:
        before_xyxy: (M, 4) pixels, scaled by the zoom of the transform, so that areas compare.
        after_xyxy: (M, 4) pixels, clipped to the output.

    Returns:
        (M,) bool: sides over 2 px, over 0.1 of the area left, aspect ratio under 100.
    """
    width_before, height_before = (before_xyxy[:, 2:] - before_xyxy[:, :2]).T
    width, height = (after_xyxy[:, 2:] - after_xyxy[:, :2]).T
    area_ratio = width * height / (width_before * height_before + _EPSILON)
    aspect_ratio = np.maximum(width / (height + _EPSILON), height / (width + _EPSILON))
    large_enough = (width > MIN_SIDE) & (height > MIN_SIDE)
    return large_enough & (area_ratio > MIN_AREA_RATIO) & (aspect_ratio < MAX_ASPECT_RATIO)


def warp_polygons(
    polygons: Polygons, matrix: np.ndarray, output_size: tuple[int, int], margin: int = 0
) -> Polygons:
    """Warp polygons by a (3, 3) matrix and cut them at the edges of an output (height, width).

    margin: distance of the cuts outside these edges, pixels.

    Returns:
        Float64. The pieces of a concave polygon are joined along the cuts. An invisible object
        has no points.

    Source: Sutherland and Hodgman 1974, "Reentrant polygon clipping".
    """
    height, width = output_size
    x, y = polygons.points_xy.T
    points = np.stack([row[0] * x + row[1] * y + row[2] for row in matrix.tolist()], axis=1)
    owner = np.repeat(np.arange(len(polygons)), polygons.num_points)
    # Cut before the division: points behind the viewer lie outside of at least one edge.
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
        points: (P, 3) homogeneous, grouped by polygon.
        owner: (P,) index of the polygon of each, ascending.
        inward: normal of the edge; its product with a point is not negative inside.
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
    num_kept[crosses] += 1  # for the cut in the edge after a point
    place = np.cumsum(num_kept) - num_kept
    kept = np.empty((int(num_kept.sum()), 3))
    kept[place[inside]] = points[inside]
    cut = points[crosses] + part[:, None] * (points[after] - points[crosses])
    kept[place[crosses] + inside[crosses]] = cut
    return kept, np.repeat(owner, num_kept)


def _following(owner: np.ndarray) -> np.ndarray:
    following = np.arange(1, len(owner) + 1)
    last = np.flatnonzero(np.diff(owner, append=-1))
    following[last] = np.concatenate(([0], last[:-1] + 1))[: len(last)]
    return following


def boxes_within(polygons: Polygons, output_size: tuple[int, int]) -> np.ndarray:
    """Return the bounding box of each polygon's visible part in (height, width), (M, 4) xyxy.

    A box ends where an edge ends or leaves the output, or at a corner of the output in the
    polygon; it is 0 for an invisible object. Source: Liang and Barsky 1984, "A new concept and
    method for line clipping".
    """
    height, width = output_size
    limits = np.array((width, height), np.float64)
    start, owner = polygons.points_xy, np.repeat(np.arange(len(polygons)), polygons.num_points)
    end = start[_following(owner)]
    change = np.where(end == start, _EPSILON, end - start)
    at_zero, at_limit = -start / change, (limits - start) / change
    first = np.minimum(at_zero, at_limit).max(axis=1).clip(min=0)
    last = np.maximum(at_zero, at_limit).min(axis=1).clip(max=1)
    seen = first <= last  # whether part of the edge is visible
    ends = start[:, None] + np.stack((first, last), axis=1)[..., None] * change[:, None]
    low, high = np.full((2, len(polygons), 2), np.inf)

    def add(owner: np.ndarray, points: np.ndarray) -> None:
        """Enlarge the boxes of objects, ascending, to hold points (N, K, 2)."""
        np.minimum.at(low, owner, points.min(axis=1))
        np.minimum.at(high, owner, -points.max(axis=1))

    add(owner[seen], ends[seen].clip(0, limits))
    for y in (0, height):
        crosses = (start[:, 1] <= y) != (end[:, 1] <= y)
        at = start[:, 0] + (y - start[:, 1]) / change[:, 1] * change[:, 0]
        for x in (0, width):
            num_crossed = np.bincount(owner[crosses & (at > x)], minlength=len(polygons))
            covers = np.flatnonzero(num_crossed % 2)
            add(covers, np.tile((x, y), (len(covers), 1, 1)))
    boxes = np.concatenate((low, -high), axis=1)
    return np.where(np.isfinite(boxes), boxes, 0)


def warp_objects(
    objects: Objects, warp: Warp, matrix: np.ndarray, output_size: tuple[int, int]
) -> Objects:
    """Return the visible objects of an output (height, width); small remains are dropped.

    Boxes are clipped, and polygons cut 2 px outside of the output. The box of a polygon is the one
    around its visible part, not around its warped box.

    Args:
        objects: canvas pixels.
        warp: its zoom makes areas before and after it comparable.
        matrix: (3, 3) of the warp.
    """
    height, width = output_size
    boxes = warp_boxes(objects.boxes_xyxy, matrix).clip(0, [width, height, width, height])
    polygons = objects.polygons
    if polygons is not None:
        has_polygon = polygons.num_points > 0
        polygons = warp_polygons(polygons, matrix, output_size, OUTLINE_MARGIN)
        boxes[has_polygon] = boxes_within(polygons, output_size)[has_polygon]
    keep = worth_keeping(objects.boxes_xyxy * warp.zoom, boxes)
    return Objects(objects.class_index, boxes, polygons).select(keep)
