"""--albumentations: the four transforms of the public YOLOv5, done by OpenCV."""

from collections.abc import Callable

import cv2
import numpy as np

from duet.utils.data.image.decoding import LabelledImage
from duet.utils.data.randomness import Stream, generator_of

SIDES = 3, 5, 7  # pixels, of the window of both blurs
CLIP_LIMITS = 1.0, 4.0
TILES = 8, 8


def transform(item: LabelledImage, probability: float, seed: int) -> LabelledImage:
    """Apply each filter with this probability; all draws are a function of the seed below 2**32.

    Each filter has two draws, used or not: one filter does not change the draws of another.
    """
    image = item.image
    draws = generator_of(Stream.TRANSFORMS, seed).random((len(FILTERS), 2)).tolist()
    for apply, (chance, draw) in zip(FILTERS.values(), draws, strict=True):
        if chance < probability:
            image = apply(image, draw)
    return item._replace(image=image)


def _blur(image: np.ndarray, draw: float) -> np.ndarray:
    side = _side(draw)
    return cv2.blur(image, (side, side))


def _median(image: np.ndarray, draw: float) -> np.ndarray:
    return cv2.medianBlur(image, _side(draw))


def _side(draw: float) -> int:
    return SIDES[int(draw * len(SIDES))]


def _grey(image: np.ndarray, draw: float) -> np.ndarray:
    return cv2.cvtColor(cv2.cvtColor(image, cv2.COLOR_BGR2GRAY), cv2.COLOR_GRAY2BGR)


def _equalize(image: np.ndarray, draw: float) -> np.ndarray:
    """Equalize the histogram of L in each tile of the CIELAB image.

    Source: Zuiderveld 1994, Contrast limited adaptive histogram equalization.
    """
    low, high = CLIP_LIMITS
    clahe = cv2.createCLAHE(low + draw * (high - low), TILES)
    lightness, *colours = cv2.split(cv2.cvtColor(image, cv2.COLOR_BGR2LAB))
    return cv2.cvtColor(cv2.merge((clahe.apply(lightness), *colours)), cv2.COLOR_LAB2BGR)


FILTERS: dict[str, Callable[[np.ndarray, float], np.ndarray]] = {
    "Blur": _blur,
    "MedianBlur": _median,
    "ToGray": _grey,
    "CLAHE": _equalize,
}
