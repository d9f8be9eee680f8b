"""Random changes to a training sample: every draw first, then a pure function of the draws."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import cv2
import numpy as np

from duet.utils.data.augment.copy_paste import CopyPaste, choose_copies, choose_objects, paste
from duet.utils.data.augment.geometry import Warp, multiply, warp_objects, warp_polygons
from duet.utils.data.augment.tiles import (
    NUM_TILES,
    Canvas,
    draw_tiles,
    mosaic_canvas,
    objects_on_canvas,
    single_canvas,
)
from duet.utils.data.augment.transforms import transform
from duet.utils.data.image.decoding import LabelledImage, Objects, SourceImage, join_objects
from duet.utils.strengths import AugmentConfig

# The public recipe's ratio is drawn from Beta(32, 32): the 32nd smallest of 63 uniform draws.
RATIO_DRAWS, RATIO_RANK = 63, 31


def draw_ratio(generator: np.random.Generator) -> float:
    return float(np.sort(generator.random(RATIO_DRAWS))[RATIO_RANK])


def mix(first: LabelledImage, second: LabelledImage, ratio: float) -> LabelledImage:
    """Blend two images of one size and keep the objects of both.

    ratio: fraction of the first. Sums are truncated, as in the reference arrays.

    Source: Zhang et al. 2018, arXiv:1710.09412.
    """
    image = first.image * ratio + second.image * (1 - ratio)
    return LabelledImage(image.astype(np.uint8), *join_objects(first.objects, second.objects))


@dataclass(frozen=True)
class Finish:
    """Changes to the finished training image as a whole."""

    hsv_gains: tuple[float, float, float]
    flip_up_down: bool
    flip_left_right: bool
    transforms: float = 0.0  # probability of each of --albumentations
    transforms_seed: int = 0


def finish(draw: Finish, item: LabelledImage) -> LabelledImage:
    if draw.transforms:
        item = transform(item, draw.transforms, draw.transforms_seed)
    image = change_hsv(item.image, draw.hsv_gains)
    image = flip(image, draw.flip_up_down, draw.flip_left_right)
    return flip_objects(draw, item._replace(image=image))


def flip_objects(draw: Finish, item: LabelledImage) -> LabelledImage:
    (height, width), objects = item.size, item.objects
    if draw.flip_up_down:
        objects = objects.mirrored(1, height)
    if draw.flip_left_right:
        objects = objects.mirrored(0, width)
    return LabelledImage(item.image, *objects)


def without_finish(draw: Any) -> Any:
    """Return a draw whose colours and flips are left to the device."""
    return replace(draw, hsv_gains=(1.0, 1.0, 1.0), flip_up_down=False, flip_left_right=False)


def change_hsv(image: np.ndarray, gains: tuple[float, float, float]) -> np.ndarray:
    """Multiply hue (modulo 180), saturation and value of a BGR uint8 image.

    Products are truncated, as in the reference arrays.
    """
    if gains == (1, 1, 1):  # the conversion to HSV and back is not exact
        return image
    table = hsv_tables(np.array(gains)).T[None]
    return cv2.cvtColor(cv2.LUT(cv2.cvtColor(image, cv2.COLOR_BGR2HSV), table), cv2.COLOR_HSV2BGR)


def hsv_tables(gains: np.ndarray) -> np.ndarray:
    """Return what becomes of each hue, saturation and value, (..., 3, 256) uint8.

    gains: (..., 3).
    """
    products = np.arange(256) * gains[..., None]
    products[..., 0, :] %= 180
    return products.clip(0, 255).astype(np.uint8)


def flip(image: np.ndarray, up_down: bool, left_right: bool) -> np.ndarray:
    """Mirror an image along neither, one or both of its axes."""
    if not (up_down or left_right):
        return image
    return cv2.flip(image, -1 if up_down and left_right else int(left_right))


@dataclass(frozen=True)
class Scene:
    """Samples that are drawn together, and their warp."""

    tiles: tuple[int, ...]  # samples in the order of the canvas: one or four
    mosaic_centre_xy: tuple[float, float]  # in units of the image size
    warp: Warp
    copy_paste: CopyPaste = field(default=CopyPaste(), kw_only=True)  # on a mosaic


@dataclass(frozen=True)
class MixedScene(Scene):
    """A scene that is blended into another."""

    ratio: float  # part of the other one


@dataclass(frozen=True)
class Augmentation(Finish, Scene):
    """Everything that is random about one training sample."""

    mixed: MixedScene | None = None

    @property
    def samples(self) -> tuple[int, ...]:
        """The samples of its tiles, then of the mixed-in scene."""
        return self.tiles + (self.mixed.tiles if self.mixed else ())


def draw_augmentation(
    config: AugmentConfig, generator: np.random.Generator, index: int, num_samples: int
) -> Augmentation:
    """Make the draws of sample `index`: the same ones in the same order for any `config`.

    New kinds of draws take a stream of their own, so that all others stay the same and older runs
    resume identically.
    """

    def between(low: float, high: float) -> float:
        return low + (high - low) * generator.random()

    def around(middle: float, spread: float) -> float:
        return between(middle - spread, middle + spread)

    mosaic = _draw_tiles(generator, index, num_samples)
    is_mosaic = generator.random() < config.mosaic
    centre_xy = between(0.5, 1.5), between(0.5, 1.5)
    warp = _draw_warp(config, around)
    hsv_gains = around(1, config.hsv_h), around(1, config.hsv_s), around(1, config.hsv_v)
    flip_up_down = generator.random() < config.flipud
    flip_left_right = generator.random() < config.fliplr
    transforms_seed = int(generator.random() * 2**32)
    copy_paste = CopyPaste(config.copy_paste, int(generator.random() * 2**53))
    is_mixed = generator.random() < config.mixup and is_mosaic
    return Augmentation(
        tiles=mosaic if is_mosaic else (index,),
        mosaic_centre_xy=centre_xy,
        warp=warp,
        copy_paste=copy_paste,
        hsv_gains=hsv_gains,
        flip_up_down=flip_up_down,
        flip_left_right=flip_left_right,
        # Nothing is drawn after it: these many draws are made where they are used.
        mixed=_draw_mixed(config, generator, around, num_samples) if is_mixed else None,
        transforms=config.transforms,
        transforms_seed=transforms_seed if config.transforms else 0,
    )


def _draw_tiles(generator: np.random.Generator, index: int, num_samples: int) -> tuple[int, ...]:
    """Draw partners for a sample from all, and the order of the four."""
    partners = [int(generator.random() * num_samples) for _ in range(NUM_TILES - 1)]
    shuffled = np.argsort(generator.random(NUM_TILES), kind="stable")
    return tuple((index, *partners)[position] for position in shuffled)


def _draw_mixed(
    config: AugmentConfig,
    generator: np.random.Generator,
    around: Callable[[float, float], float],
    num_samples: int,
) -> MixedScene:
    """Draw a second mosaic, around any sample."""
    ratio = draw_ratio(generator)
    index = int(generator.random() * num_samples)
    return MixedScene(
        tiles=_draw_tiles(generator, index, num_samples),
        mosaic_centre_xy=(around(1, 0.5), around(1, 0.5)),
        warp=_draw_warp(config, around),
        copy_paste=CopyPaste(config.copy_paste, int(generator.random() * 2**53)),
        ratio=ratio,
    )


def _draw_warp(config: AugmentConfig, around: Callable[[float, float], float]) -> Warp:
    return Warp(
        angle=around(0, config.degrees),
        zoom=around(1, config.scale),
        shear_xy=(around(0, config.shear), around(0, config.shear)),
        centre_xy=(around(0.5, config.translate), around(0.5, config.translate)),
        perspective_xy=(around(0, config.perspective), around(0, config.perspective)),
    )


def augment(
    draw: Augmentation,
    sources: Sequence[SourceImage],
    image_size: int,
    output_size: tuple[int, int] | None = None,
) -> LabelledImage:
    """Return the training image of a draw.

    Args:
        sources: of `draw.samples`; hidden ones are not decoded.
        image_size: the long side of each source, pixels.
        output_size: (height, width), about the middle of the canvas; None for a square of
            side `image_size`.
    """
    output_size = output_size or (image_size, image_size)
    item = draw_scene(draw, sources[: len(draw.tiles)], image_size, output_size)
    if draw.mixed is not None:
        other = draw_scene(draw.mixed, sources[len(draw.tiles) :], image_size, output_size)
        item = mix(item, other, draw.mixed.ratio)
    return finish(draw, item)


def draw_scene(
    scene: Scene, sources: Sequence[SourceImage], image_size: int, output_size: tuple[int, int]
) -> LabelledImage:
    """Return an image of a scene's samples with their visible objects."""
    canvas = _lay_out(scene, [source.size for source in sources], image_size)
    matrix = scene.warp.matrix((canvas.side, canvas.side), output_size)
    objects = objects_on_canvas(canvas, sources)
    if scene.copy_paste.share and len(canvas.tiles) > 1:
        image, objects = _draw_with_copies(
            scene.copy_paste, canvas, sources, objects, matrix, output_size
        )
    else:
        image = draw_tiles(canvas, sources, matrix, output_size)
    return LabelledImage(image, *warp_objects(objects, scene.warp, matrix, output_size))


def _lay_out(scene: Scene, sizes: Sequence[tuple[int, int]], image_size: int) -> Canvas:
    if len(sizes) == 1:
        return single_canvas(sizes[0], image_size)
    x, y = scene.mosaic_centre_xy
    return mosaic_canvas(sizes, (int(x * image_size), int(y * image_size)), image_size)


def _draw_with_copies(
    drawn: CopyPaste,
    canvas: Canvas,
    sources: Sequence[SourceImage],
    objects: Objects,
    matrix: np.ndarray,
    output_size: tuple[int, int],
) -> tuple[np.ndarray, Objects]:
    """Draw a canvas through a warp with copies of some objects; return the copies too.

    A copy is the part of the mirrored and warped canvas within the warped polygon.
    """
    chosen = choose_copies(choose_objects(drawn, objects), objects, canvas.side)
    if not len(chosen):
        return draw_tiles(canvas, sources, matrix, output_size), objects
    sources = [source._replace(decode=cache(source.decode)) for source in sources]
    image = draw_tiles(canvas, sources, matrix, output_size)
    copies = objects.select(chosen).mirrored(0, canvas.side)
    assert copies.polygons is not None
    seen = warp_polygons(copies.polygons, matrix, output_size)
    counts = [len(source.objects.class_index) for source in sources]
    origin = np.repeat(np.arange(len(sources)), counts)
    copied = np.unique(origin[chosen[seen.num_points > 0]]).tolist()
    tiles = Canvas(canvas.side, tuple(canvas.tiles[index] for index in copied))
    # The first pixel of a canvas becomes the last.
    mirrored = multiply(matrix, np.array([[-1, 0, canvas.side - 1], [0, 1, 0], [0, 0, 1]]))
    paste(image, draw_tiles(tiles, [sources[i] for i in copied], mirrored, output_size), seen)
    return image, join_objects(objects, copies)
