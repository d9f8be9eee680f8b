"""One image of the built-in dataset: shapes of five classes over colour clouds and clutter."""

import math
from typing import NamedTuple

import cv2
import numpy as np

from duet.utils.geometry.boxes import join_parts

MAX_OBJECTS = 7
SIZE_RANGE = (0.18, 0.45)  # diameter as a fraction of the image's shorter side
LARGE_RANGE = (0.6, 0.95)  # likewise, of the only shape of an image
CENTRE_SPREAD = 0.08  # maximum distance of that shape from the middle, same fraction
MIN_INSIDE = 0.6  # an object shows at least this fraction of itself inside the image
MIN_VISIBLE = 0.55  # and keeps this fraction of that when others cover it
# Colour helps but does not decide, as with most real classes: a small network that trains for
# minutes on a CPU then learns the classes too.
TYPICAL_COLOUR = 0.8  # fraction of objects in a hue of their class
HUE_SPREAD = 15  # around it, of 180; the hues of the classes lie 36 apart
_TRIES = 8  # places tried for an object before it is left out
_SUBPIXEL_BITS = 4
_FINER = 8  # times as many pixels a side: an outline is right to an eighth of a pixel
# How far, in these pixels, a drawn object reaches beyond the points that OpenCV was given: pixels
# of which it covers half or more, measured at 300 objects.
_BEYOND = 4
_MIN_PIECE = 4 * _FINER**2  # in these pixels: four whole ones; smaller pieces are not drawn


class Scene(NamedTuple):
    """A drawn image with boxes around the visible part of every object."""

    image: np.ndarray  # (H, W, 3) uint8, BGR
    class_index: np.ndarray  # (M,) int64
    boxes_xyxy: np.ndarray  # (M, 4) float64 pixels
    outlines: tuple[np.ndarray, ...]  # M of (K, 2) float64 pixels, whole: later ones cover others


def _regular(corners: int, phase: float = 0.0) -> np.ndarray:
    angles = phase + np.arange(corners) * (2 * math.pi / corners)
    return np.stack((np.cos(angles), np.sin(angles)), axis=1)


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
    "star": _regular(10) * np.tile([[1], [0.42]], (5, 1)),
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
    classes, outlines = [], []
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
    boxes = [cv2.boundingRect((owner == number).astype(np.uint8)) for number in range(len(areas))]
    boxes_xyxy = np.array(boxes, np.float64).reshape(-1, 4)
    boxes_xyxy[:, 2:] += boxes_xyxy[:, :2]
    image = add_noise(generator, image)
    return Scene(image, np.array(classes, np.int64), boxes_xyxy, tuple(outlines))


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


def _place(
    generator: np.random.Generator, class_index: int, owner: np.ndarray, areas: list[int]
) -> _Object | None:
    """Return a place for a new object where it hides no other; None if none is found."""
    outline = list(OUTLINES.values())[class_index]
    for _ in range(_TRIES):
        points = _pose(generator, outline, owner.shape)
        placed = _rasterise(points, owner.shape)
        whole = cv2.contourArea(points.astype(np.float32))
        if placed.mask.sum() >= MIN_INSIDE * whole and _leaves_visible(placed, owner, areas):
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
    """Draw a range of hues for an object: around its class's hue, or all."""
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


def draw_backdrop(generator: np.random.Generator, size: tuple[int, int]) -> np.ndarray:
    """Draw muted colour clouds with patches of stripes, scribbles and specks."""
    cells = 2 + int(4 * generator.random())
    clouds = [random_colour(generator, (0, 110), (40, 230)) for _ in range(cells * cells)]
    grid = np.array(clouds, np.uint8).reshape(cells, cells, 3)
    image = cv2.resize(grid, (size[1], size[0]), interpolation=cv2.INTER_CUBIC)
    for _ in range(int(4 * generator.random())):
        _stripes(generator, image)
    for _ in range(5 + int(20 * generator.random())):
        _scribble(generator, image)
    return image


def _stripes(generator: np.random.Generator, image: np.ndarray) -> None:
    colour = random_colour(generator, (0, 110), (40, 230)).tolist()
    height, width = image.shape[:2]
    angle = math.pi * generator.random()
    direction = np.array([math.cos(angle), math.sin(angle)])
    normal = np.array([-direction[1], direction[0]])
    spacing, reach = 8 + 24 * generator.random(), height + width
    first = generator.random(2) * [width, height]
    for step in range(3 + int(6 * generator.random())):
        middle = first + normal * spacing * step
        ends = np.round([middle - reach * direction, middle + reach * direction]).astype(int)
        cv2.line(image, ends[0].tolist(), ends[1].tolist(), colour, 1, cv2.LINE_AA)


def _scribble(generator: np.random.Generator, image: np.ndarray) -> None:
    """Draw a short open curve of a few segments, in any colour."""
    colour = random_colour(generator, (0, 255), (20, 255)).tolist()
    height, width = image.shape[:2]
    steps = (generator.random((2 + int(5 * generator.random()), 2)) - 0.5) * 0.2 * height
    points = np.cumsum(steps, axis=0) + generator.random(2) * [width, height]
    thickness = 1 + int(3 * generator.random())
    cv2.polylines(image, [np.round(points).astype(np.int32)], False, colour, thickness, cv2.LINE_AA)


def add_noise(generator: np.random.Generator, image: np.ndarray) -> np.ndarray:
    """Add slight blur to some images, and uniform noise of up to +-16 to all."""
    if generator.random() < 0.3:
        image = cv2.GaussianBlur(image, (3, 3), 0)
    strength = int(17 * generator.random())
    steps = ((np.arange(256) / 127.5 - 1) * strength).round().astype(np.int16)
    noise = steps[np.frombuffer(generator.bytes(image.size), np.uint8)]
    return np.clip(image + noise.reshape(image.shape), 0, 255).astype(np.uint8)


def random_colour(
    generator: np.random.Generator,
    saturation: tuple[int, int],
    value: tuple[int, int],
    hue: tuple[int, int] = (0, 180),
) -> np.ndarray:
    """Draw a BGR colour, (3,) float64, from ranges in OpenCV's 8-bit HSV; hues wrap at 180."""
    low, high = np.array([hue, saturation, value]).T
    hsv = (low + (high - low) * generator.random(3)) % [180, 256, 256]
    return cv2.cvtColor(hsv.astype(np.uint8)[None, None], cv2.COLOR_HSV2BGR)[0, 0].astype(
        np.float64
    )


def visible_outlines(scene: Scene) -> list[np.ndarray]:
    """Return the visible outline (K, 2) float64 of each object, pixels of the image.

    Hidden parts are left out, the pieces of an object joined, and holes ignored.
    """
    size_wh = np.array(scene.image.shape[1::-1])
    found = []
    for index, outline in enumerate(scene.outlines):
        first = (np.floor(outline.min(axis=0)) - 1).clip(0)
        end = np.minimum(np.ceil(outline.max(axis=0)) + 2, size_wh)
        width, height = (_FINER * (end - first)).astype(int).tolist()
        mask = np.zeros((height, width), np.uint8)
        _fill(mask, outline - first, 1)
        for cover in scene.outlines[index + 1 :]:
            _fill(mask, cover - first, 0)
        found.append(first + (_border(mask) + 0.5) / _FINER)
    return found


def _fill(mask: np.ndarray, outline: np.ndarray, shade: int) -> None:
    # The centre of a pixel is at a whole number for OpenCV, and half a pixel on in a label.
    corners = np.rint((outline + 0.5) * _FINER - 0.5).astype(np.int32)
    cv2.fillPoly(mask, [corners], (shade,))
    cv2.polylines(mask, [corners], True, (shade,), 2 * _BEYOND)


def _border(mask: np.ndarray) -> np.ndarray:
    """Return the outer border (K, 2) of all pieces, without points that lie within a pixel."""
    borders, _ = cv2.findContours(mask, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
    areas = [cv2.contourArea(border) for border in borders]
    pieces = [
        cv2.approxPolyDP(border, 1.0, True).reshape(-1, 2).astype(np.float64)
        for border, area in zip(borders, areas, strict=True)
        if area >= min(_MIN_PIECE, max(areas))  # all there is of a tiny object
    ]
    return join_parts(pieces)
