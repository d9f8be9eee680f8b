"""The plain loader: decode whole images, paste them onto a canvas, warp it; the reference.

`utils/data` draws the same sample without the canvas. Tests compare its result with this one, and
`benchmarks.loader` its time. Source: the mosaic of YOLOv4, Bochkovskiy et al. 2020,
arXiv:2004.10934.
"""

from collections.abc import Sequence

import cv2
import numpy as np

from duet.utils.data.augment.copy_paste import (
    CopyPaste,
    choose_copies,
    choose_objects,
    paste,
)
from duet.utils.data.augment.geometry import Warp, warp_objects, warp_polygons
from duet.utils.data.augment.sample import Augmentation, Scene, draw_augmentation, finish
from duet.utils.data.augment.tiles import NUM_TILES
from duet.utils.data.image.decoding import LabelledImage, join_objects
from duet.utils.data.image.letterbox import FILL, fit_long_side, resize
from duet.utils.data.loading.items import BOXES
from duet.utils.data.randomness import sample_generator
from duet.utils.data.sources.samples import Sample, decode, objects_of
from duet.utils.geometry.boxes import join_polygons
from duet.utils.strengths import AugmentConfig


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
    shown = [samples[tile] for tile in draw.samples]
    images = [LabelledImage(decode(sample), *objects_of(sample)) for sample in shown]
    return plain_augment(draw, images, image_size)


def plain_augment(
    draw: Augmentation, images: Sequence[LabelledImage], image_size: int
) -> LabelledImage:
    """Return the training image of a draw, from the whole images of `draw.samples`."""
    item = _plain_scene(draw, images[: len(draw.tiles)], image_size)
    if draw.mixed is not None:
        other = _plain_scene(draw.mixed, images[len(draw.tiles) :], image_size)
        item = blend(item, other, draw.mixed.ratio)
    return finish(draw, item)


def blend(first: LabelledImage, second: LabelledImage, ratio: float) -> LabelledImage:
    """Return the weighted sum of two images in float64, truncated, with the objects of both."""
    image = (first.image * ratio + second.image * (1 - ratio)).astype(np.uint8)
    return LabelledImage(image, *join_objects(first.objects, second.objects))


def _plain_scene(scene: Scene, images: Sequence[LabelledImage], image_size: int) -> LabelledImage:
    item = _compose(scene, images, image_size)
    if scene.copy_paste.share and len(images) > 1:
        item = paste_copies(item, scene.copy_paste)
    return warp_labelled(item, scene.warp, (image_size, image_size))


def paste_copies(item: LabelledImage, drawn: CopyPaste) -> LabelledImage:
    """Paste mirrored objects of a canvas onto it."""
    objects, width = item.objects, item.size[1]
    chosen = choose_copies(choose_objects(drawn, objects), objects, width)
    if not len(chosen):
        return item
    copies = objects.select(chosen).mirrored(0, width)
    image = item.image.copy()
    paste(image, cv2.flip(item.image, 1), copies.polygons)
    return LabelledImage(image, *join_objects(objects, copies))


def _compose(scene: Scene, images: Sequence[LabelledImage], image_size: int) -> LabelledImage:
    x, y = scene.mosaic_centre_xy
    if len(images) == NUM_TILES:
        return mosaic(images, (int(x * image_size), int(y * image_size)), image_size)
    placement = fit_long_side(images[0].size, image_size, (image_size, image_size))
    return BOXES.fit(images[0], placement)


def warp_labelled(item: LabelledImage, warp: Warp, output_size: tuple[int, int]) -> LabelledImage:
    """Warp an image and its objects to (height, width); drop those cut too small."""
    matrix = warp.matrix(item.size, output_size)
    image = warp_image(item.image, matrix, output_size)
    return LabelledImage(image, *warp_objects(item.objects, warp, matrix, output_size))


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
    boxes, polygons = [], []
    for position, tile in enumerate(tiles):
        placement = fit_long_side(tile.size, image_size, (image_size, image_size))
        height, width = placement.resized_size
        left = centre_xy[0] - (width if position in (0, 2) else 0)
        top = centre_xy[1] - (height if position in (0, 1) else 0)
        rows = slice(max(top, 0), max(min(top + height, side), 0))
        columns = slice(max(left, 0), max(min(left + width, side), 0))
        image = resize(tile.image, placement.resized_size)
        canvas[rows, columns] = image[
            max(-top, 0) : max(rows.stop - top, 0), max(-left, 0) : max(columns.stop - left, 0)
        ]
        scale_y, scale_x = placement.scale
        boxes.append(tile.boxes_xyxy * ([scale_x, scale_y] * 2) + [left, top] * 2)
        moved = tile.polygons and tile.polygons.moved((scale_x, scale_y), (left, top))
        polygons.append((moved, len(tile.boxes_xyxy)))
    class_index = np.concatenate([tile.class_index for tile in tiles])
    item = LabelledImage(canvas, class_index, np.concatenate(boxes), join_polygons(polygons))
    return _cut(item, side)


def _cut(item: LabelledImage, side: int) -> LabelledImage:
    """Cut boxes and polygons at the edges of a canvas."""
    boxes, polygons = item.boxes_xyxy.clip(0, side), item.polygons
    if polygons is not None:
        had_points = polygons.num_points > 0
        polygons = warp_polygons(polygons, np.eye(3), (side, side))
        boxes[had_points & (polygons.num_points == 0)] = 0
    return item._replace(boxes_xyxy=boxes, polygons=polygons)
