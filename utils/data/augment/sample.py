"""Random changes to a training sample: every draw first, then a pure function of the draws."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from utils.data.augment.canvas import (
    NUM_TILES,
    NUM_TILES_OF_NINE,
    Canvas,
    canvas_of_nine,
    mosaic_canvas,
    objects_on_canvas,
    single_canvas,
    warp_objects,
)
from utils.data.augment.copy_paste import (
    CopyPaste,
    choose_copies,
    choose_objects,
    draw_copy_paste,
    mirror,
    paste,
)
from utils.data.augment.finishing import NUM_CUTOUT_DRAWS, Finish, draw_ratio, finish, mix
from utils.data.augment.geometry import Warp, multiply, warp_polygons
from utils.data.augment.tiles import draw_tiles
from utils.data.image.labelled import LabelledImage, Objects, SourceImage, join_objects
from utils.strengths import AugmentConfig


@dataclass(frozen=True)
class Scene:
    """Which samples are seen together, and how."""

    tiles: tuple[int, ...]  # samples in the order of the canvas: one, four or nine
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
        """The samples of its tiles, then those of the scene that is mixed in."""
        return self.tiles + (self.mixed.tiles if self.mixed else ())


def draw_augmentation(
    config: AugmentConfig, generator: np.random.Generator, index: int, num_samples: int
) -> Augmentation:
    """Make the draws of sample `index`: the same ones in the same order for any `config`."""

    def between(low: float, high: float) -> float:
        return low + (high - low) * generator.random()

    def around(middle: float, spread: float) -> float:
        return between(middle - spread, middle + spread)

    four = _draw_tiles(generator, index, num_samples, NUM_TILES)
    is_mosaic = generator.random() < config.mosaic
    centre_xy = between(0.5, 1.5), between(0.5, 1.5)
    warp = _draw_warp(config, around)
    hsv_gains = around(1, config.hsv_h), around(1, config.hsv_s), around(1, config.hsv_v)
    flip_up_down = generator.random() < config.flipud
    flip_left_right = generator.random() < config.fliplr
    # Each kind of draw that was added later follows: a run of an earlier version goes on equally.
    nine = _draw_tiles(generator, index, num_samples, NUM_TILES_OF_NINE)
    mosaic = nine if generator.random() < config.mosaic9 else four
    transforms_seed = int(generator.random() * 2**32)
    is_cut_out = generator.random() < config.cutout
    cutout = generator.random(NUM_CUTOUT_DRAWS)
    copy_paste = draw_copy_paste(config.copy_paste, generator)
    is_mixed = generator.random() < config.mixup and is_mosaic
    return Augmentation(
        tiles=mosaic if is_mosaic else (index,),
        mosaic_centre_xy=centre_xy,
        warp=warp,
        copy_paste=copy_paste,
        hsv_gains=hsv_gains,
        flip_up_down=flip_up_down,
        flip_left_right=flip_left_right,
        # Last, as nothing is drawn after it: these many draws are made where they are used.
        mixed=_draw_mixed(config, generator, around, num_samples) if is_mixed else None,
        cutout=tuple(cutout.tolist()) if is_cut_out else (),
        transforms=config.transforms,
        transforms_seed=transforms_seed if config.transforms else 0,
    )


def _draw_tiles(
    generator: np.random.Generator, index: int, num_samples: int, number: int
) -> tuple[int, ...]:
    """Draw partners for a sample from all, and the order of so many together."""
    partners = [int(generator.random() * num_samples) for _ in range(number - 1)]
    shuffled = np.argsort(generator.random(number), kind="stable")
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
    is_nine = generator.random() < config.mosaic9
    number = NUM_TILES_OF_NINE if is_nine else NUM_TILES
    return MixedScene(
        tiles=_draw_tiles(generator, index, num_samples, number),
        mosaic_centre_xy=(around(1, 0.5), around(1, 0.5)),
        warp=_draw_warp(config, around),
        copy_paste=draw_copy_paste(config.copy_paste, generator),
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
        draw: from `draw_augmentation`.
        sources: those of `draw.samples`; hidden ones are not decoded.
        image_size: the long side of each source, pixels.
        output_size: (height, width) of the result, about the middle of the canvas; by default a
            square of side `image_size`.
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
    """Return an image of the samples of a scene, with what is seen of their objects."""
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
    if len(sizes) == NUM_TILES_OF_NINE:
        corner = int((x - 0.5) * image_size), int((y - 0.5) * image_size)
        return canvas_of_nine(sizes, corner, image_size)
    return mosaic_canvas(sizes, (int(x * image_size), int(y * image_size)), image_size)


def _draw_with_copies(
    drawn: CopyPaste,
    canvas: Canvas,
    sources: Sequence[SourceImage],
    objects: Objects,
    matrix: np.ndarray,
    output_size: tuple[int, int],
) -> tuple[np.ndarray, Objects]:
    """Draw a canvas through a warp with copies of some of its objects, as `draw_tiles` does.

    A copy is what the mirrored canvas shows through the warp, within the warped polygon. The
    objects, in canvas pixels, are returned with the copies behind them.
    """
    chosen = choose_copies(choose_objects(drawn, objects), objects, canvas.side)
    if not len(chosen):
        return draw_tiles(canvas, sources, matrix, output_size), objects
    sources = [source._replace(decode=cache(source.decode)) for source in sources]
    image = draw_tiles(canvas, sources, matrix, output_size)
    copies = mirror(objects, chosen, canvas.side)
    assert copies.polygons is not None
    seen = warp_polygons(copies.polygons, matrix, output_size)
    origin = np.repeat(np.arange(len(sources)), [len(source.class_index) for source in sources])
    copied = np.unique(origin[chosen[seen.num_points > 0]]).tolist()
    tiles = Canvas(canvas.side, tuple(canvas.tiles[index] for index in copied))
    # Of the pixels of a canvas, the first becomes the last.
    mirrored = multiply(matrix, np.array([[-1, 0, canvas.side - 1], [0, 1, 0], [0, 0, 1]]))
    paste(image, draw_tiles(tiles, [sources[i] for i in copied], mirrored, output_size), seen)
    return image, join_objects(objects, copies)
