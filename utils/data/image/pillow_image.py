"""Images that Pillow decodes: of kinds that OpenCV does not read, and those with alpha.

Before: the bytes of a file. After: `decoding.py`.
"""

from __future__ import annotations

from typing import BinaryIO

import cv2
import numpy as np
from PIL.Image import Image

from utils.data.image.eight_bits import WHITE, over_white
from utils.data.image.kinds import open_image

_ALPHA_MODES = ("LA", "La", "PA", "RGBA", "RGBa")
_DEEP_MODE = "I;16"


def has_alpha(image: Image) -> bool:
    """Return whether an image has transparency; its pixels are not decoded.

    One value of a 16-bit gray image that stands for transparent, as PNG has it, does not count.
    """
    is_keyed = "transparency" in image.info and not image.mode.startswith(_DEEP_MODE)
    return image.mode in _ALPHA_MODES or is_keyed


def decode_with_pillow(file: BinaryIO, kind: str) -> np.ndarray:
    """Return the first frame of an image, (H, W, 3) uint8 BGR, over white, as it is stored.

    Raises:
        Exception: it is damaged; Pillow promises no list of what it raises.
    """
    image = open_image(kind, file)
    if kind != "GIF":
        return as_bgr(image)
    place = image.tile[0].extents
    assert place is not None
    left, top, right, bottom = place
    pixels = as_bgr(image)
    # A frame may be smaller than the screen; Pillow takes any colour for what it leaves out.
    for outside in (np.s_[:top], np.s_[bottom:], np.s_[:, :left], np.s_[:, right:]):
        pixels[outside] = WHITE
    return pixels


def as_bgr(image: Image) -> np.ndarray:
    """Return a Pillow image of at most 8 bits per channel as (H, W, 3) uint8 BGR, over white."""
    if not has_alpha(image):
        return cv2.cvtColor(np.asarray(image.convert("RGB")), cv2.COLOR_RGB2BGR)
    pixels = np.asarray(image if image.mode == "RGBA" else image.convert("RGBA"))
    return over_white(cv2.cvtColor(pixels, cv2.COLOR_RGBA2BGR), pixels[..., 3])
