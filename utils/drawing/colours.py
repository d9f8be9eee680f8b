"""A colour for every class: the same in all runs, and easy to tell from the others.

Before: class numbers. After: `annotate.py`, `utils/report/plots/`.
"""

from __future__ import annotations

from functools import cache, lru_cache

import numpy as np

RGB = tuple[int, int, int]  # 0 to 255

# Seven colours told apart under the common kinds of colour blindness: Okabe and Ito 2008.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")
NUM_COLOURS = 80  # of classes that are told apart; those of COCO

BLACK, WHITE = (0, 0, 0), (255, 255, 255)

# What is chosen from: neither nearly black or white, nor grey, as the image may be.
_GRID_STEP = 15
_LIGHTNESS = (0.45, 0.92)
_LEAST_CHROMA = 0.07

# Linear sRGB -> cone responses, and their cube roots -> OKLab: Ottosson 2020, "A perceptual color
# space for image processing".
_TO_CONES = np.array([
    (0.4122214708, 0.5363325363, 0.0514459929),
    (0.2119034982, 0.6806995451, 0.1073969566),
    (0.0883024619, 0.2817188376, 0.6299787005),
])  # fmt: skip
_TO_OKLAB = np.array([
    (0.2104542553, 0.7936177850, -0.0040720468),
    (1.9779984951, -2.4285922050, 0.4505937099),
    (0.0259040371, 0.7827717662, -0.8086757660),
])  # fmt: skip
_LUMINANCE = np.array((0.2126, 0.7152, 0.0722))  # of linear sRGB


def class_colour(class_index: int) -> RGB:
    """Return the colour of a class; that of class 80 is that of class 0."""
    return _palette()[class_index % NUM_COLOURS]


@lru_cache(maxsize=NUM_COLOURS)
def ink_on(colour: RGB) -> RGB:
    """Return black or white, whichever has more contrast with a colour: WCAG 2.1, 1.4.3.

    The smaller of both contrasts is largest at sqrt(21), so the ratio is never below 4.58.
    """
    luminance = float(_linear(np.array(colour)) @ _LUMINANCE)
    return BLACK if (luminance + 0.05) ** 2 > 1.05 * 0.05 else WHITE


def to_oklab(colours: np.ndarray) -> np.ndarray:
    """Convert sRGB colours (..., 3) in [0, 255] to OKLab: lightness in [0, 1], and two axes."""
    return np.cbrt(_linear(colours) @ _TO_CONES.T) @ _TO_OKLAB.T


@cache
def _palette() -> tuple[RGB, ...]:
    """The seven colours, then again and again the one of the grid furthest from all before."""
    chosen = [_from_hex(colour) for colour in COLOURS]
    candidates = _candidates()
    places = to_oklab(candidates)
    distance = np.full(len(places), np.inf)
    for colour in chosen:
        distance = np.minimum(distance, _distance(places, colour))
    while len(chosen) < NUM_COLOURS:
        red, green, blue = candidates[distance.argmax()].tolist()
        chosen.append((red, green, blue))
        distance = np.minimum(distance, _distance(places, chosen[-1]))
    return tuple(chosen)


def _candidates() -> np.ndarray:
    """Return the sRGB colours (N, 3) that may be chosen."""
    levels = np.arange(0, 256, _GRID_STEP)
    grid = np.stack(np.meshgrid(levels, levels, levels, indexing="ij"), axis=-1).reshape(-1, 3)
    lightness, *axes = to_oklab(grid).T
    lowest, highest = _LIGHTNESS
    return grid[(lightness >= lowest) & (lightness <= highest) & (np.hypot(*axes) >= _LEAST_CHROMA)]


def _distance(places: np.ndarray, colour: RGB) -> np.ndarray:
    # Rounded: machines differ in the last digits, and must not differ in the colour.
    return np.linalg.norm(places - to_oklab(np.array(colour)), axis=-1).round(9)


def _linear(colours: np.ndarray) -> np.ndarray:
    """Undo the transfer function of sRGB: [0, 255] -> [0, 1] (IEC 61966-2-1)."""
    value = np.asarray(colours) / 255
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def _from_hex(colour: str) -> RGB:
    red, green, blue = bytes.fromhex(colour[1:])
    return red, green, blue
