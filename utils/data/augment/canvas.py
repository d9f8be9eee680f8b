"""The images of a training sample on their canvas, and the objects on it.

The canvas is never drawn: `tiles.py` draws each image from there.
"""

from __future__ import annotations

from collections.abc import Sequence
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
from duet.utils.data.image.decoding import Objects, SourceImage
from duet.utils.data.image.letterbox import fit_long_side
from duet.utils.polygons import Polygons, join_polygons

NUM_TILES = 4


class Tile(NamedTuple):
    """An image's place on a canvas; the canvas is never drawn itself."""

    resized_size: tuple[int, int]  # (height, width) of the image on the canvas
    scale: tuple[float, float]  # (vertical, horizontal) from image to canvas pixels
    top: int  # canvas pixels; what lies outside the canvas is not seen
    left: int

    def to_canvas(self, boxes_xyxy: np.ndarray) -> np.ndarray:
        """Map (M, 4) boxes from image to canvas pixels, float64, not clipped."""
        scale_y, scale_x = self.scale
        left, top = self.left, self.top
        return boxes_xyxy * [scale_x, scale_y, scale_x, scale_y] + [left, top, left, top]


class Canvas(NamedTuple):
    """A square of this side with its tiles."""

    side: int
    tiles: tuple[Tile, ...]


def single_canvas(size: tuple[int, int], image_size: int) -> Canvas:
    """Place one image of (height, width) in the middle of a canvas, as large as fits."""
    placement = fit_long_side(size, image_size, (image_size, image_size))
    return Canvas(image_size, (Tile(placement.resized_size, placement.scale, *placement.padding),))


def mosaic_canvas(
    sizes: Sequence[tuple[int, int]], centre_xy: tuple[int, int], image_size: int
) -> Canvas:
    """Place four images, each with its long side at `image_size`, around a point where they meet.

    Args:
        sizes: (height, width) of top left, top right, bottom left, bottom right.
        centre_xy: this point on the canvas, pixels.
        image_size: half the side of the canvas.
    """
    tiles = [_tile(size, image_size, centre_xy[1], centre_xy[0]) for size in sizes]
    for position, tile in enumerate(tiles):
        height, width = tile.resized_size
        left = tile.left - (width if position in (0, 2) else 0)
        tiles[position] = tile._replace(top=tile.top - (height if position < 2 else 0), left=left)
    return Canvas(2 * image_size, tuple(tiles))


def _tile(size: tuple[int, int], image_size: int, top: int, left: int) -> Tile:
    """Return an image with its long side at `image_size`."""
    placement = fit_long_side(size, image_size, (image_size, image_size))
    return Tile(placement.resized_size, placement.scale, top, left)


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
    return Objects(objects.class_index, boxes, polygons).select(keep)
