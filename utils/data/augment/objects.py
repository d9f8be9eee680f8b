"""The objects of all images of a canvas, and what a warp shows of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from utils.data.augment.clipping import boxes_within, warp_polygons
from utils.data.augment.geometry import Warp, warp_boxes, worth_keeping
from utils.data.augment.tiles import Canvas
from utils.data.image.decoding import SourceImage
from utils.polygons import Polygons, join_polygons

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
