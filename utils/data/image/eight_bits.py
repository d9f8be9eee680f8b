"""Pixels of any depth and with alpha -> 8 bits per channel without alpha.

Before: `decoding.py` and `pillow_image.py` decode. After: the same.
"""

from __future__ import annotations

import numpy as np

WHITE = 255
_ROWS = 64  # at a time, for the memory that 16 bits take


def to_eight_bits(image: np.ndarray, num_bits: int = 16) -> np.ndarray:
    """Return the 8 highest bits of those that an image uses, uint8.

    An image of 10, 12 or 14 bits is often stored as one of 16, in which it would be black. So one
    of 16 uses the least even number of bits, 8 or more, that holds its largest value.

    Args:
        image: uint16.
        num_bits: of the file's; OpenCV moves 10 to 14 of them up to the highest of 16.
    """
    used = max(8, int(image.max()).bit_length()) if num_bits == 16 else 16
    eight = np.empty(image.shape, np.uint8)
    return np.right_shift(image, used + used % 2 - 8, out=eight, casting="unsafe")


def over_white(colours: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    """Return colours (H, W, 3) uint8 over white, as much as alpha (H, W) uint8 lets through.

    If alpha is 0 everywhere, it is ignored: the colours are returned as they are.
    """
    lowest, highest = int(alpha.min()), int(alpha.max())
    if lowest == WHITE or highest == 0:
        return colours
    mixed = np.empty_like(colours)
    for first in range(0, len(alpha), _ROWS):
        rows = slice(first, first + _ROWS)
        opacity = alpha[rows, :, None].astype(np.uint16)
        sums = colours[rows] * opacity + (WHITE * (WHITE - opacity) + WHITE // 2)
        mixed[rows] = sums // WHITE
    return mixed
