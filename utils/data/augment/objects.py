"""The objects of all images of a canvas, and what a warp shows of them.

A straight edge of a polygon stays straight in any warp, so that corners are all that is moved, and
points are added only where an edge is cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from utils.data.augment.geometry import Warp, warp_boxes, worth_keeping
from utils.data.augment.tiles import Canvas
from utils.data.image.labelled import SourceImage
from utils.polygons import Polygons, join_polygons, starts_of

_EPSILON = 1e-16
# Cut so many pixels outside: pieces are joined there, and who fills a polygon fills its edges too.
OUTLINE_MARGIN = 2


class Objects(NamedTuple):
    """Objects in pixels of a canvas or of a training image."""

    class_index: np.ndarray  # (M,) int64
    boxes_xyxy: np.ndarray  # (M, 4) float64
    polygons: Polygons | None  # float64, of the M objects; None when all are boxes


def objects_on_canvas(canvas: Canvas, sources: Sequence[SourceImage]) -> Objects:
    """Return the objects of all images of a canvas, cut at its edges."""
    placed = zip(canvas.tiles, sources, strict=True)
    boxes = np.concatenate([tile.to_canvas(source.boxes_xyxy) for tile, source in placed])
    polygons = _place_polygons(canvas, sources)
    if len(canvas.tiles) > 1:  # an only image lies on its canvas as a whole
        boxes = boxes.clip(0, canvas.side)
        if polygons is not None:
            had_points = polygons.num_points > 0
            polygons = warp_polygons(polygons, np.eye(3), (canvas.side, canvas.side))
            # A corner of the box may lie on the canvas, but not the object.
            boxes[had_points & (polygons.num_points == 0)] = 0
    class_index = np.concatenate([source.class_index for source in sources])
    return Objects(class_index, boxes, polygons)


def _place_polygons(canvas: Canvas, sources: Sequence[SourceImage]) -> Polygons | None:
    """Return the polygons of all images in canvas pixels, not cut; None without any."""
    parts = []
    for tile, source in zip(canvas.tiles, sources, strict=True):
        polygons = source.polygons
        if polygons is not None:
            polygons = polygons.moved(tile.scale[::-1], (tile.left, tile.top))
        parts.append((polygons, len(source.class_index)))
    return join_polygons(parts)


def warp_objects(
    objects: Objects, warp: Warp, matrix: np.ndarray, output_size: tuple[int, int]
) -> Objects:
    """Return the objects that an output shows; small remains are dropped.

    Boxes are clipped, and polygons cut 2 px outside of the output. The box of a polygon is the one
    around what is seen of it, not around its warped box.

    Args:
        objects: canvas pixels.
        warp: whose zoom makes areas before and after it comparable.
        matrix: (3, 3) of the warp.
        output_size: (height, width).
    """
    height, width = output_size
    boxes = warp_boxes(objects.boxes_xyxy, matrix).clip(0, [width, height, width, height])
    polygons = objects.polygons
    if polygons is not None:
        has_polygon = polygons.num_points > 0
        polygons = warp_polygons(polygons, matrix, output_size, OUTLINE_MARGIN)
        boxes[has_polygon] = boxes_within(polygons, output_size)[has_polygon]
    keep = worth_keeping(objects.boxes_xyxy * warp.zoom, boxes)
    kept_polygons = None if polygons is None else polygons.select(keep)
    return Objects(objects.class_index[keep], boxes[keep], kept_polygons)


def join_objects(first: Objects, second: Objects) -> Objects:
    """Return the objects of both, those of the first before those of the second."""
    parts = [(part.polygons, len(part.class_index)) for part in (first, second)]
    return Objects(
        np.concatenate((first.class_index, second.class_index)),
        np.concatenate((first.boxes_xyxy, second.boxes_xyxy)),
        join_polygons(parts),
    )


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
