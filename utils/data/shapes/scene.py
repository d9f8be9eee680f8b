"""One image of the built-in dataset: shapes of five classes over textured clutter.

Before: nothing but a generator. After: `dataset.py`, which writes images and labels to files.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import cv2
import numpy as np

from utils.data.shapes.backdrop import add_noise, draw_backdrop, random_colour

MAX_OBJECTS = 7
SIZE_RANGE = (0.18, 0.45)  # diameter as a fraction of the image's shorter side
LARGE_RANGE = (0.6, 0.95)  # likewise, of the only shape of an image
CENTRE_SPREAD = 0.08  # so far from the middle is that one, each way
MIN_INSIDE = 0.6  # an object shows at least this fraction of itself inside the image
MIN_VISIBLE = 0.55  # and keeps this fraction of that when others cover it
# Colour helps but does not decide, as with most real classes: a small network that trains for
# minutes on a CPU then learns the classes too.
TYPICAL_COLOUR = 0.8  # fraction of objects in a hue of their class
HUE_SPREAD = 15  # around it, of 180; the hues of the classes lie 36 apart
_TRIES = 8  # places tried for an object before it is left out
_SUBPIXEL_BITS = 4


class Scene(NamedTuple):
    """A drawn image with boxes around the visible part of every object."""

    image: np.ndarray  # (H, W, 3) uint8, BGR
    class_index: np.ndarray  # (M,) int64
    boxes_xyxy: np.ndarray  # (M, 4) float64 pixels
    outlines: tuple[np.ndarray, ...]  # M of (K, 2) float64 pixels, whole: later ones cover others


def _regular(corners: int, phase: float = 0.0) -> np.ndarray:
    angles = phase + np.arange(corners) * (2 * math.pi / corners)
    return np.stack((np.cos(angles), np.sin(angles)), axis=1)


def _star() -> np.ndarray:
    outline = _regular(10)
    outline[1::2] *= 0.42
    return outline


def _cross() -> np.ndarray:
    arm = np.array([[1, -0.3], [1, 0.3], [0.3, 0.3]])
    turned = [arm]
    for _ in range(3):
        turned.append(turned[-1][:, ::-1] * [-1, 1])
    return np.concatenate(turned)


# Outlines inside the unit circle, (K, 2), in the order of the classes.
OUTLINES = {
    "circle": _regular(48) * 0.9,
    "square": _regular(4, math.pi / 4),
    "triangle": _regular(3),
    "star": _star(),
    "cross": _cross(),
}


class _Object(NamedTuple):
    """An object's place: a window of the image, and how much of each of its pixels it covers."""

    rows: slice
    columns: slice
    coverage: np.ndarray  # (h, w) uint8, anti-aliased
    outline: np.ndarray  # (K, 2) float64 pixels of the image

    @property
    def mask(self) -> np.ndarray:
        return self.coverage > 127


def draw_scene(generator: np.random.Generator, size: tuple[int, int]) -> Scene:
    """Draw an image of (height, width) pixels with 1 to 7 objects."""
    image = draw_backdrop(generator, size)
    owner = np.full(size, -1, np.int16)  # which object a pixel shows
    areas: list[int] = []
    classes: list[int] = []
    outlines: list[np.ndarray] = []
    for _ in range(1 + int(generator.random() * MAX_OBJECTS)):
        class_index = int(generator.random() * len(OUTLINES))
        placed = _place(generator, class_index, owner, areas)
        if placed is None:
            continue
        owner[placed.rows, placed.columns][placed.mask] = len(areas)
        areas.append(int(placed.mask.sum()))
        classes.append(class_index)
        outlines.append(placed.outline)
        _paint(generator, image, placed, _hue_of(generator, class_index))
    boxes = np.array([_bounds(owner == number) for number in range(len(areas))], np.float64)
    image = add_noise(generator, image)
    return Scene(image, np.array(classes, np.int64), boxes.reshape(-1, 4), tuple(outlines))


def draw_one_shape(
    generator: np.random.Generator,
    size: tuple[int, int],
    outline: np.ndarray,
    hue: tuple[int, int],
) -> np.ndarray:
    """Draw an image of (height, width) pixels that shows one large shape, (H, W, 3) uint8 BGR."""
    image = draw_backdrop(generator, size)
    points = _pose(generator, outline, size, LARGE_RANGE)
    shift = CENTRE_SPREAD * (2 * generator.random(2) - 1) * min(size)
    points += size[::-1] * np.array(0.5) + shift - points.mean(axis=0)
    _paint(generator, image, _rasterise(points, size), hue)
    return add_noise(generator, image)


def _shows(placed: _Object, points: np.ndarray, least: float) -> bool:
    """Return whether this part of an object's outline (K, 2) is inside the image."""
    return bool(placed.mask.sum() >= least * cv2.contourArea(points.astype(np.float32)))


def _place(
    generator: np.random.Generator, class_index: int, owner: np.ndarray, areas: list[int]
) -> _Object | None:
    """Return a place for a new object where it hides no other; None if none is found."""
    outline = list(OUTLINES.values())[class_index]
    for _ in range(_TRIES):
        points = _pose(generator, outline, owner.shape)
        placed = _rasterise(points, owner.shape)
        if _shows(placed, points, MIN_INSIDE) and _leaves_visible(placed, owner, areas):
            return placed
    return None


def _rasterise(points: np.ndarray, size: tuple[int, ...]) -> _Object:
    left, top = np.floor(points.min(axis=0)).astype(int).clip(0)
    right, bottom = np.minimum(np.ceil(points.max(axis=0)).astype(int) + 1, [size[1], size[0]])
    coverage = np.zeros((bottom - top, right - left), np.uint8)
    fixed_point = np.round((points - [left, top]) * 2**_SUBPIXEL_BITS).astype(np.int32)
    cv2.fillPoly(coverage, [fixed_point], (255,), cv2.LINE_AA, _SUBPIXEL_BITS)
    return _Object(slice(top, bottom), slice(left, right), coverage, points)


def _leaves_visible(placed: _Object, owner: np.ndarray, areas: list[int]) -> bool:
    covered = owner[placed.rows, placed.columns][placed.mask]
    hidden = np.bincount(covered[covered >= 0], minlength=len(areas))
    visible = np.bincount(owner[owner >= 0], minlength=len(areas))
    return bool(np.all(visible - hidden >= MIN_VISIBLE * np.array(areas)))


def _pose(
    generator: np.random.Generator,
    outline: np.ndarray,
    size: tuple[int, ...],
    size_range: tuple[float, float] = SIZE_RANGE,
) -> np.ndarray:
    """Return the outline at a random size, squeeze, rotation and place, (K, 2) pixels."""
    smallest, largest = size_range
    diameter = min(size) * smallest * (largest / smallest) ** generator.random()
    squeeze = 0.85 + 0.3 * generator.random()
    angle = 2 * math.pi * generator.random()
    rotation = np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
    centre = generator.random(2) * [size[1], size[0]]
    return (outline * [1, squeeze] * diameter / 2) @ rotation + centre


def _hue_of(generator: np.random.Generator, class_index: int) -> tuple[int, int]:
    """Draw between which hues an object's is: around that of its class, or any."""
    if generator.random() < TYPICAL_COLOUR:
        middle = 180 * class_index // len(OUTLINES)
        return middle - HUE_SPREAD, middle + HUE_SPREAD
    return 0, 180


def _paint(
    generator: np.random.Generator, image: np.ndarray, placed: _Object, hue: tuple[int, int]
) -> None:
    """Blend one object in a strong colour with a shaded side into the image."""
    colour = random_colour(generator, saturation=(150, 255), value=(110, 255), hue=hue)
    height, width = placed.coverage.shape
    slope_y, slope_x = 0.6 * (generator.random(2) - 0.5)
    ramp = np.linspace(-slope_y, slope_y, height)[:, None] + np.linspace(-slope_x, slope_x, width)
    shaded = np.clip(colour * (1 + ramp[..., None]), 0, 255)
    alpha = placed.coverage[..., None] / 255
    window = image[placed.rows, placed.columns]
    window[:] = np.round(window * (1 - alpha) + shaded * alpha)


def _bounds(mask: np.ndarray) -> tuple[int, int, int, int]:
    """Return left, top, right, bottom around the true pixels of a mask (H, W)."""
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    return columns[0], rows[0], columns[-1] + 1, rows[-1] + 1
