"""The text of a label -> a small image of it on its colour.

Before: `annotate.py`. Pillow draws words, which come again and again, and never sees an image.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import cache, lru_cache

import numpy as np
from PIL import Image, ImageDraw

from utils.drawing.colours import RGB, ink_on
from utils.drawing.fonts import sized, with_font

# In sizes of the font, so that labels in any font are of one height.
ABOVE_BASELINE, BELOW_BASELINE, BESIDE, SPACE = 0.95, 0.3, 0.25, 0.3
LONGEST_TEXT = 200  # characters; a name comes from a file and has any length


def label_height(font_size: int) -> int:
    """Return the height of every label, pixels."""
    return round(ABOVE_BASELINE * font_size) + round(BELOW_BASELINE * font_size)


def label_image(text: str, font_size: int, colour: RGB, max_width: int) -> np.ndarray:
    """Return a text in black or white on a colour: (h, w, 3) uint8 RGB.

    Args:
        font_size: of the em, pixels.
        max_width: pixels; a wider text ends in "..".
    """
    margin = np.zeros((label_height(font_size), max(round(BESIDE * font_size), 1)), np.uint8)
    words = _words(_fitting(text[:LONGEST_TEXT], font_size, max_width - 2 * margin.shape[1]))
    space = margin[:, :1].repeat(round(SPACE * font_size), axis=1)
    parts = [part for word in words for part in (space, _word_mask(word, font_size))]
    mask = np.concatenate([margin, *parts[1:], margin], axis=1)
    return np.take(_shades(colour), mask[:, :max_width], axis=0)


def _words(text: str) -> list[str]:
    return text.split(" ")


def _width(text: str, font_size: int) -> int:
    words = _words(text)
    spaces = round(SPACE * font_size) * (len(words) - 1)
    return spaces + sum(_word_mask(word, font_size).shape[1] for word in words)


@lru_cache(maxsize=512)
def _fitting(text: str, font_size: int, max_width: int) -> str:
    """Return a text, or as much of its start as is not too wide, and ".."."""
    if _width(text, font_size) <= max_width:
        return text
    # With more letters a text grows wider, but for a few pairs that move together.
    shorter = range(1, len(text))
    fitting = bisect_right(shorter, max_width, key=lambda end: _width(f"{text[:end]}..", font_size))
    return f"{text[:fitting]}.."


@lru_cache(maxsize=512)
def _word_mask(word: str, font_size: int) -> np.ndarray:
    """Return how much ink is in each pixel of a word: (h, w) uint8, of a label's height."""
    font, text = with_font(word)
    letters = sized(font, font_size)
    mask = Image.new("L", (round(letters.getlength(text)), label_height(font_size)))
    baseline = round(ABOVE_BASELINE * font_size)
    ImageDraw.Draw(mask).text((0, baseline), text, fill=255, font=letters, anchor="ls")
    return np.array(mask).reshape(mask.height, mask.width)  # an empty image has no shape


@cache
def _shades(colour: RGB) -> np.ndarray:
    """Return (256, 3) uint8 RGB: from a colour to the ink on it."""
    ink = np.linspace(0, 1, 256)[:, None]
    field = np.array(colour)
    return (field + ink * (np.array(ink_on(colour)) - field)).round().astype(np.uint8)
