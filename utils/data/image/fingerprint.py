"""What an image looks like in 64 bits, and which of many images look alike.

Before: the bytes of image files. After: `alike.py`, which groups them.
"""

from __future__ import annotations

import hashlib
import io
from functools import lru_cache
from typing import NamedTuple

import cv2
import numpy as np

from utils.data.image.decoding import OtherSizeError, choose_reduction, decode_bytes
from utils.data.image.header import BrokenImageError, check_size, read_header
from utils.data.image.limits import MAX_PIXELS

UNKNOWN = 0  # no fingerprint: the file cannot be read, or the image shows too little
CELLS = 32  # a side: so many averages of the image the cosines are taken of
WAVES = 8  # a side, the slowest ones; the slowest of all is the mean, which is left out
_SCALE = 1 << 10  # of the cosines as whole numbers: the same bits on every machine
# Below this half of the waves are weaker than the noise of JPEG, whose bits would say nothing.
_FAINT = 0.1  # grey levels of 255


class Fingerprint(NamedTuple):
    """An image file in two numbers of 64 bits; `UNKNOWN` where there is none."""

    content: int  # of its bytes: equal files alone have the same
    look: int  # of its pixels: near-duplicates differ in few bits


NO_FINGERPRINT = Fingerprint(UNKNOWN, UNKNOWN)


def fingerprint_of(content: np.ndarray, max_pixels: int = MAX_PIXELS) -> Fingerprint:
    """Return the fingerprint of an image file; its look is unknown if it cannot be decoded.

    Args:
        content: (N,) uint8, the whole file.
        max_pixels: of an image; a larger one is not decoded.
    """
    number = int.from_bytes(hashlib.sha256(content.data).digest()[:8], "big")
    try:
        size = read_header(io.BytesIO(content.data)).size
        check_size(size, max_pixels)
        image = decode_bytes(content, size, choose_reduction((min(size), min(size)), CELLS))
    except (BrokenImageError, OtherSizeError, OSError):
        return Fingerprint(number, UNKNOWN)
    return Fingerprint(number, look_of(image))


def look_of(image: np.ndarray) -> int:
    """Return the perceptual hash of an image, (H, W, 3) uint8 BGR; `UNKNOWN` for a flat one.

    The image is averaged to 32x32 cells of grey. A bit for each of the 63 slowest waves of their
    cosine transform says whether it is above the median of them. All sums are whole numbers.

    Source: Zauner 2010, "Implementation and benchmarking of perceptual image hash functions".
    """
    grey = cv2.cvtColor(image, cv2.COLOR_BGR2GRAY).astype(np.int64)
    height, width = grey.shape
    waves = (_waves_over(height) @ grey @ _waves_over(width).T).ravel()[1:]
    faint = _FAINT * height * width * (_SCALE * CELLS) ** 2 / 4
    if np.median(np.abs(waves)) < faint:
        return UNKNOWN
    bits = np.packbits(np.append(False, waves > np.median(waves)))
    return int.from_bytes(bits.tobytes(), "big")


@lru_cache(maxsize=64)
def _waves_over(side: int) -> np.ndarray:
    """Return (WAVES, side) int64, what each pixel of a side adds to each wave over the cells."""
    ends = np.arange(1, side + 1) * CELLS  # of pixels; a cell is `side` long, so all are whole
    cells = np.arange(CELLS)[:, None] * side
    shared = np.minimum(ends, cells + side) - np.maximum(ends - CELLS, cells)
    angles = np.outer(np.arange(WAVES), np.arange(CELLS) + 0.5) * np.pi / CELLS
    return np.rint(_SCALE * np.cos(angles)).astype(np.int64) @ shared.clip(0)
