"""The plain loader: decode whole images, paste them onto a canvas, warp it; the reference.

`utils/data` draws the same sample without the canvas. Tests compare its result with this one, and
`benchmarks.loader` its time. Source: the mosaic of YOLOv4, Bochkovskiy et al. 2020,
arXiv:2004.10934.
"""

from __future__ import annotations

from collections.abc import Sequence

import cv2
import numpy as np

from utils.data.augment.clipping import warp_polygons
from utils.data.augment.copy_paste import (
    CopyPaste,
    choose_copies,
    choose_objects,
    mirror,
    paste,
)
from utils.data.augment.geometry import Warp
from utils.data.augment.objects import Objects, join_objects, warp_objects
from utils.data.augment.sample import (
    Augmentation,
    change_hsv,
    draw_augmentation,
    flip_left_right,
    flip_up_down,
)
from utils.data.augment.strengths import AugmentConfig
from utils.data.augment.tiles import NUM_TILES
from utils.data.image.decoding import LabelledImage, letterbox_labelled
from utils.data.image.letterbox import fit_long_side
from utils.data.image.resizing import FILL, resize
from utils.data.loading.reading import read_image
from utils.data.randomness import sample_generator
from utils.data.sources.labels import Sample
from utils.polygons import Polygons, join_polygons


def plain_item(
    samples: Sequence[Sample],
    image_size: int,
    config: AugmentConfig,
    seed: int,
    epoch: int,
    index: int,
) -> LabelledImage:
    """Return the training sample that `TrainBatches` makes from the same arguments."""
    generator = sample_generator(seed, epoch, index)
    draw = draw_augmentation(config, generator, index, len(samples))
    return plain_augment(draw, [read_image(samples[tile]) for tile in draw.tiles], image_size)


def plain_augment(
    draw: Augmentation, images: Sequence[LabelledImage], image_size: int
) -> LabelledImage:
    """Return the training image of a draw, from the whole images of `draw.tiles`."""
    item = _compose(draw, images, image_size)
    if draw.copy_paste.share and len(images) > 1:
        item = paste_copies(item, draw.copy_paste)
    item = warp_labelled(item, draw.warp, (image_size, image_size))
    item = item._replace(image=change_hsv(item.image, draw.hsv_gains))
    if draw.flip_up_down:
        item = flip_up_down(item)
    if draw.flip_left_right:
        item = flip_left_right(item)
    return item


def _compose(draw: Augmentation, images: Sequence[LabelledImage], image_size: int) -> LabelledImage:
    if len(images) == NUM_TILES:
        centre_x, centre_y = (int(fraction * image_size) for fraction in draw.mosaic_centre_xy)
        return mosaic(images, (centre_x, centre_y), image_size)
    placement = fit_long_side(images[0].size, image_size, (image_size, image_size))
    return letterbox_labelled(images[0], placement)


def paste_copies(item: LabelledImage, drawn: CopyPaste) -> LabelledImage:
    """Paste mirrored objects of a canvas onto it."""
    objects = Objects(item.class_index, item.boxes_xyxy, item.polygons)
    width = item.size[1]
    chosen = choose_copies(choose_objects(drawn, objects), objects, width)
    if not len(chosen):
        return item
    copies, polygons = mirror(objects, chosen, width)
    image = item.image.copy()
    paste(image, cv2.flip(item.image, 1), polygons)
    return LabelledImage(image, *join_objects(objects, copies))


def warp_labelled(item: LabelledImage, warp: Warp, output_size: tuple[int, int]) -> LabelledImage:
    """Warp an image and its objects to (height, width); drop those cut too small."""
    matrix = warp.matrix(item.size, output_size)
    objects = Objects(item.class_index, item.boxes_xyxy, item.polygons)
    image = warp_image(item.image, matrix, output_size)
    return LabelledImage(image, *warp_objects(objects, warp, matrix, output_size))


def warp_image(image: np.ndarray, matrix: np.ndarray, output_size: tuple[int, int]) -> np.ndarray:
    """Warp an image (H, W, 3) uint8 to (height, width), bilinear; grey where it has no pixel."""
    size_wh, grey = (output_size[1], output_size[0]), (FILL, FILL, FILL)
    if np.array_equal(matrix, np.eye(3)) and image.shape[:2] == output_size:
        return image
    if np.array_equal(matrix[2], [0, 0, 1]):
        return cv2.warpAffine(image, matrix[:2], size_wh, borderValue=grey)
    return cv2.warpPerspective(image, matrix, size_wh, borderValue=grey)


def mosaic(
    tiles: Sequence[LabelledImage], centre_xy: tuple[int, int], image_size: int
) -> LabelledImage:
    """Paste four images, each with its long side at `image_size`, so that they meet in a point.

    Args:
        tiles: top left, top right, bottom left, bottom right, in their own pixels.
        centre_xy: where the four meet on the canvas, pixels.
        image_size: half the side of the canvas.

    Returns:
        The canvas, grey where no tile lies; boxes are clipped to it, and some may be empty.
    """
    side = 2 * image_size
    canvas = np.full((side, side, 3), FILL, np.uint8)
    parts = [
        _paste(canvas, tile, position, centre_xy, image_size) for position, tile in enumerate(tiles)
    ]
    class_index = np.concatenate([tile.class_index for tile in tiles])
    item = LabelledImage(canvas, class_index, np.concatenate([part.boxes_xyxy for part in parts]))
    return _cut(item, join_polygons([(part.polygons, len(part.boxes_xyxy)) for part in parts]))


def _cut(item: LabelledImage, polygons: Polygons | None) -> LabelledImage:
    """Cut boxes and polygons at the edges of a canvas."""
    side = item.size[0]
    boxes = item.boxes_xyxy.clip(0, side)
    if polygons is not None:
        had_points = polygons.num_points > 0
        polygons = warp_polygons(polygons, np.eye(3), item.size)
        boxes[had_points & (polygons.num_points == 0)] = 0
    return item._replace(boxes_xyxy=boxes, polygons=polygons)


def _paste(
    canvas: np.ndarray,
    tile: LabelledImage,
    position: int,
    centre_xy: tuple[int, int],
    image_size: int,
) -> LabelledImage:
    """Paste one tile, cropped to the canvas; return it with labels in canvas pixels."""
    placement = fit_long_side(tile.size, image_size, (image_size, image_size))
    height, width = placement.resized_size
    left = centre_xy[0] - (width if position in (0, 2) else 0)
    top = centre_xy[1] - (height if position in (0, 1) else 0)
    rows = slice(max(top, 0), min(top + height, canvas.shape[0]))
    columns = slice(max(left, 0), min(left + width, canvas.shape[1]))
    image = resize(tile.image, placement.resized_size)
    canvas[rows, columns] = image[
        rows.start - top : rows.stop - top, columns.start - left : columns.stop - left
    ]
    scale_y, scale_x = placement.scale
    boxes = tile.boxes_xyxy * [scale_x, scale_y, scale_x, scale_y] + [left, top, left, top]
    polygons = tile.polygons
    if polygons is not None:
        polygons = polygons.moved((scale_x, scale_y), (left, top))
    return tile._replace(boxes_xyxy=boxes, polygons=polygons)
