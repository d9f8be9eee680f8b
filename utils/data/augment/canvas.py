"""The images of a training sample on their canvas, and the objects on it.

The canvas is never drawn: `tiles.py` draws each image from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from duet.utils.data.augment.geometry import (
    OUTLINE_MARGIN,
    Warp,
    boxes_within,
    warp_boxes,
    warp_polygons,
    worth_keeping,
)
from duet.utils.data.image.decoding import Objects, SourceImage, join_objects
from duet.utils.data.image.letterbox import Letterbox, fit_long_side

NUM_TILES = 4


class Canvas(NamedTuple):
    """A square of this side with the places of its images; what lies outside it is not seen."""

    side: int
    tiles: tuple[Letterbox, ...]


def single_canvas(size: tuple[int, int], image_size: int) -> Canvas:
    """Place one image of (height, width) in the middle of a canvas, as large as fits."""
    return Canvas(image_size, (fit_long_side(size, image_size, (image_size, image_size)),))


def mosaic_canvas(
    sizes: Sequence[tuple[int, int]], centre_xy: tuple[int, int], image_size: int
) -> Canvas:
    """Place four images, each with its long side at `image_size`, around a point where they meet.

    Args:
        sizes: (height, width) of top left, top right, bottom left, bottom right.
        centre_xy: this point on the canvas, pixels.
        image_size: half the side of the canvas.
    """
    side, tiles = 2 * image_size, []
    for position, size in enumerate(sizes):
        tile = fit_long_side(size, image_size, (side, side))
        height, width = tile.resized_size
        left = centre_xy[0] - (width if position in (0, 2) else 0)
        top = centre_xy[1] - (height if position < 2 else 0)
        tiles.append(replace(tile, padding=(top, left)))
    return Canvas(side, tuple(tiles))


def objects_on_canvas(canvas: Canvas, sources: Sequence[SourceImage]) -> Objects:
    """Return the objects of all images of a canvas, cut at its edges."""
    placed = zip(canvas.tiles, sources, strict=True)
    objects = join_objects(*(source.objects.placed(tile) for tile, source in placed))
    if len(canvas.tiles) == 1:  # it lies on its canvas as a whole
        return objects
    boxes, polygons = objects.boxes_xyxy.clip(0, canvas.side), objects.polygons
    if polygons is not None:
        had_points = polygons.num_points > 0
        polygons = warp_polygons(polygons, np.eye(3), (canvas.side, canvas.side))
        # A corner of the box may lie on the canvas, but not the object.
        boxes[had_points & (polygons.num_points == 0)] = 0
    return Objects(objects.class_index, boxes, polygons)


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
    return Objects(objects.class_index, boxes, polygons).select(keep)
