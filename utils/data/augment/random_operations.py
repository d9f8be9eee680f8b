"""RandAugment: a few operations on a whole image, drawn from fourteen, all of one strength.

Source: Cubuk et al. 2019, arXiv:1909.13719; the largest changes are those of its appendix.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import cv2
import numpy as np

from utils.data.image.letterbox import FILL

NUM_OPERATIONS = 2  # an image
DRAWS_AN_OPERATION = 2  # which one, and in which direction
NUM_DRAWS = NUM_OPERATIONS * DRAWS_AN_OPERATION
MAX_ANGLE, MAX_SHEAR, MAX_SHIFT = 30.0, 0.3, 0.45  # degrees; per pixel; of the side
MAX_BLEND = 0.9  # colours: 1 +- this
MAX_DROPPED_BITS = 4
_SMOOTH = np.array([[1, 1, 1], [1, 5, 1], [1, 1, 1]], np.float32) / 13


class Operation(NamedTuple):
    """One of `OPERATIONS`."""

    name: str
    strength: float  # from -1 to 1; the sign is the direction, where there are two


def draw_operations(strength: float, draws: Sequence[float]) -> tuple[Operation, ...]:
    """Return the operations of an image; none for strength 0.

    Args:
        strength: from 0 to 1.
        draws: `NUM_DRAWS`, from 0 to below 1.
    """
    if not strength:
        return ()
    names = list(OPERATIONS)
    pairs = np.reshape(draws, (-1, DRAWS_AN_OPERATION)).tolist()
    return tuple(
        Operation(names[int(which * len(names))], strength if direction < 0.5 else -strength)
        for which, direction in pairs
    )


def apply(image: np.ndarray, operations: Sequence[Operation]) -> np.ndarray:
    """Return an image (H, W, 3) uint8 BGR after these operations."""
    for name, strength in operations:
        image = OPERATIONS[name](image, strength)
    return image


def _unchanged(image: np.ndarray, strength: float) -> np.ndarray:
    return image


def _stretched(image: np.ndarray, strength: float) -> np.ndarray:
    """Stretch each channel from its darkest to its lightest pixel over all shades."""
    return cv2.merge([_stretched_channel(channel) for channel in cv2.split(image)])


def _stretched_channel(channel: np.ndarray) -> np.ndarray:
    low, high = int(channel.min()), int(channel.max())
    if low == high:
        return channel
    stretched = (np.arange(256) - low) * 255 / (high - low)
    return cv2.LUT(channel, stretched.clip(0, 255).astype(np.uint8))


def _equalised(image: np.ndarray, strength: float) -> np.ndarray:
    return cv2.merge([cv2.equalizeHist(channel) for channel in cv2.split(image)])


def _solarised(image: np.ndarray, strength: float) -> np.ndarray:
    """Invert all shades from a threshold up."""
    shades = np.arange(256)
    inverted = np.where(shades >= 256 * (1 - abs(strength)), 255 - shades, shades)
    return cv2.LUT(image, inverted.astype(np.uint8))


def _posterised(image: np.ndarray, strength: float) -> np.ndarray:
    """Leave the high bits of each shade."""
    dropped = round(MAX_DROPPED_BITS * abs(strength))
    return cv2.LUT(image, (np.arange(256) >> dropped << dropped).astype(np.uint8))


def _blended(image: np.ndarray, other: np.ndarray, strength: float) -> np.ndarray:
    """Move an image away from another one, or towards it."""
    gain = 1 + MAX_BLEND * strength
    return cv2.addWeighted(image, gain, other, 1 - gain, 0)


def _coloured(image: np.ndarray, strength: float) -> np.ndarray:
    grey = cv2.cvtColor(image, cv2.COLOR_BGR2GRAY)
    return _blended(image, cv2.merge([grey] * 3), strength)


def _contrasted(image: np.ndarray, strength: float) -> np.ndarray:
    mean = round(cv2.mean(cv2.cvtColor(image, cv2.COLOR_BGR2GRAY))[0])
    return _blended(image, np.full_like(image, mean), strength)


def _brightened(image: np.ndarray, strength: float) -> np.ndarray:
    return _blended(image, np.zeros_like(image), strength)


def _sharpened(image: np.ndarray, strength: float) -> np.ndarray:
    return _blended(image, cv2.filter2D(image, -1, _SMOOTH), strength)


def _moved(
    matrix_of: Callable[[float], Sequence[Sequence[float]]],
) -> Callable[[np.ndarray, float], np.ndarray]:
    """Return the operation that moves pixels about the middle, by a (2, 2) matrix."""

    def operation(image: np.ndarray, strength: float) -> np.ndarray:
        height, width = image.shape[:2]
        turned = np.array(matrix_of(strength), np.float64)
        middle = np.array([width - 1, height - 1]) / 2
        return _warped(image, np.column_stack([turned, middle - turned @ middle]))

    return operation


def _rotation(strength: float) -> Sequence[Sequence[float]]:
    angle = math.radians(MAX_ANGLE * strength)
    return [[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]]


def _shifted(horizontal: bool) -> Callable[[np.ndarray, float], np.ndarray]:
    def operation(image: np.ndarray, strength: float) -> np.ndarray:
        height, width = image.shape[:2]
        shift = MAX_SHIFT * strength
        x, y = (shift * width, 0.0) if horizontal else (0.0, shift * height)
        return _warped(image, np.array([[1, 0, x], [0, 1, y]]))

    return operation


def _warped(image: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    size_wh = image.shape[1], image.shape[0]
    return cv2.warpAffine(image, matrix, size_wh, borderValue=(FILL, FILL, FILL))


OPERATIONS: dict[str, Callable[[np.ndarray, float], np.ndarray]] = {
    "identity": _unchanged,
    "auto contrast": _stretched,
    "equalize": _equalised,
    "solarize": _solarised,
    "posterize": _posterised,
    "colour": _coloured,
    "contrast": _contrasted,
    "brightness": _brightened,
    "sharpness": _sharpened,
    "rotate": _moved(_rotation),
    "shear x": _moved(lambda strength: [[1, MAX_SHEAR * strength], [0, 1]]),
    "shear y": _moved(lambda strength: [[1, 0], [MAX_SHEAR * strength, 1]]),
    "translate x": _shifted(horizontal=True),
    "translate y": _shifted(horizontal=False),
}
