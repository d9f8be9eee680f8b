"""Draw boxes, labels, lines of text and masks on an image, in any script.

matplotlib's own font with Latin, Greek and Cyrillic letters comes first, so that most drawings look
the same everywhere; installed fonts follow. Nothing is downloaded.
"""

import logging
import unicodedata
from collections.abc import Sequence
from functools import cache, lru_cache
from pathlib import Path

import cv2
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from duet.utils.colours import RGB, class_colour, ink_on
from duet.utils.data.masks.runs import window_of_runs
from duet.utils.geometry.boxes import clip_boxes
from duet.utils.geometry.detections import Ragged
from duet.utils.text import printable

# Lines scale with the image, which is shown in a window or on a page. Letters grow more slowly: a
# large image has more to read.
LINE_OF_SIDE = 0.005
LETTERS_OF_SIDE, LETTERS_POWER = 0.17, 0.75  # labels of 25 pixels at 640 x 480, as in YOLOv5
LEAST_LETTERS = 10  # pixels; smaller ones are unreadable
MAX_LABEL_HEIGHT = 1 / 8  # relative to the image's
LINES_IN_BOX = 4  # minimum box size in line widths, to keep its content visible
# Label margins in font sizes; spaces between words are as wide as the margin.
ABOVE_BASELINE, BELOW_BASELINE, BESIDE = 0.95, 0.3, 0.25
# Places of labels: the upper part of a box should not be covered, another label still less.
HEAD, LABEL_COST, OWN_COST = 0.25, 10.0, 0.5
NO_LABEL = np.zeros((0, 0, 3), np.uint8)
LONGEST_TEXT = 200  # characters; names come from files and may be of any length

MAX_FONTS = 200  # searched for a character, plain ones first
LESS_PLAIN = ("bold", "italic", "oblique", "light", "thin", "black", "serif", "mono", "condensed")
WITHOUT_LETTERS = ("lastresort", "adobeblank")  # have every character, as a box or a blank
DIGITS = "0123456789. "  # shown next to each name

log = logging.getLogger("drawing")


def draw_boxes(
    image: np.ndarray,
    boxes_xyxy: np.ndarray,
    class_index: np.ndarray,
    labels: Sequence[str],
    line_width: int | None = None,
) -> np.ndarray:
    """Return a copy of an image (H, W, 3) uint8 RGB with boxes, and labels unless it is very small.

    Args:
        boxes_xyxy: (K, 4), pixels; most important first, drawn on top. Boxes that are not finite or
            outside the image are skipped.
        class_index: (K,), determines the colours.
        labels: one line per box; "" for none.
        line_width: pixels; None to derive it from the image size.
    """
    drawn = image.copy()
    size = image.shape[0], image.shape[1]
    left, top, right, bottom = boxes_xyxy.T
    is_seen = (left < size[1]) & (top < size[0]) & (right > 0) & (bottom > 0)
    seen = np.flatnonzero(is_seen & np.isfinite(boxes_xyxy).all(axis=1))
    boxes = np.round(clip_boxes(boxes_xyxy[seen].astype(np.float64), size)).astype(int)
    colours = [class_colour(index) for index in class_index[seen].tolist()]
    for box, colour in zip(boxes[::-1].tolist(), colours[::-1], strict=True):
        _draw_outline(drawn, box, line_width or default_line_width(size), colour)
    letters = default_font_size(size)
    if label_height(letters) > MAX_LABEL_HEIGHT * size[0]:
        return drawn
    images = [
        label_image(labels[index], letters, colour, size[1]) if labels[index] else NO_LABEL
        for index, colour in zip(seen.tolist(), colours, strict=True)
    ]
    places = place_labels(boxes, [label.shape[:2] for label in images], size)
    for (left, top), label in zip(places[::-1], images[::-1], strict=True):
        height, width = label.shape[:2]
        drawn[top : top + height, left : left + width] = label
    return drawn


def place_labels(
    boxes: np.ndarray, sizes: Sequence[tuple[int, int]], image_size: tuple[int, int]
) -> list[tuple[int, int]]:
    """Place each label in turn at its box where it covers least; return (left, top) of each.

    Args:
        boxes: (K, 4) xyxy whole pixels of an image (height, width).
        sizes: (height, width) of each label; (0, 0) for none.
    """
    heads = boxes.astype(np.float64)  # the upper part: faces and most identifying features
    heads[:, 3] = heads[:, 1] + HEAD * (heads[:, 3] - heads[:, 1])
    taken, found = np.zeros((len(boxes), 4)), []
    for index, ((left, top, right, bottom), (height, width)) in enumerate(
        zip(boxes.tolist(), sizes, strict=True)
    ):
        rows = top - height, bottom, bottom - height, top
        columns = left, right - width
        corners = [(x, y) for y in rows for x in columns]
        corners += [(left - width, top), (right, top)]
        starts = np.clip(corners, 0, (image_size[1] - width, image_size[0] - height))
        places = np.concatenate((starts, starts + (width, height)), axis=1)
        others = np.delete(heads, index, axis=0)
        covered = LABEL_COST * _overlaps(places, taken[:index]) + _overlaps(places, others)
        covered += OWN_COST * _overlaps(places, heads[index : index + 1])
        best = int(np.argmin(covered))  # the first of the best
        taken[index] = places[best]
        found.append((int(starts[best, 0]), int(starts[best, 1])))
    return found


def _overlaps(places: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """Return the area of each place (N, 4) that boxes (M, 4) cover, (N,)."""
    top_left = np.maximum(places[:, None, :2], boxes[None, :, :2])
    sides = np.minimum(places[:, None, 2:], boxes[None, :, 2:]) - top_left
    areas: np.ndarray = np.clip(sides, 0, None).prod(axis=2).sum(axis=1)
    return areas


def draw_lines(image: np.ndarray, lines: Sequence[str], colours: Sequence[RGB]) -> np.ndarray:
    """Return a copy of an image (H, W, 3) uint8 RGB with lines of text on coloured ground.

    In the upper half: letters shrink, and lines without room are dropped.
    """
    drawn = image.copy()
    height, width = image.shape[:2]
    letters = default_font_size((height, width))
    while letters > LEAST_LETTERS and label_height(letters) * len(lines) > height / 2:
        letters -= 1
    step = label_height(letters)
    room = height // 2 // step
    for number, (line, colour) in enumerate(zip(lines[:room], colours, strict=False)):
        label = label_image(line, letters, colour, width)
        drawn[number * step : (number + 1) * step, : label.shape[1]] = label
    return drawn


def default_line_width(image_size: tuple[int, int]) -> int:
    return max(round(LINE_OF_SIDE * _side(image_size)), 2)


def default_font_size(image_size: tuple[int, int]) -> int:
    return max(round(LETTERS_OF_SIDE * _side(image_size) ** LETTERS_POWER), LEAST_LETTERS)


def label_height(font_size: int) -> int:
    return round(ABOVE_BASELINE * font_size) + round(BELOW_BASELINE * font_size)


def label_image(text: str, font_size: int, colour: RGB, max_width: int) -> np.ndarray:
    """Render a line of text on a colour, (h, w, 3) uint8 RGB; long texts end in ".."; pixels."""
    text = one_line(text[:LONGEST_TEXT])
    path = font_for(text) or font_files()[0]
    margin = max(round(BESIDE * font_size), 1)
    room, font = max_width - 2 * margin, sized(path, font_size)
    if font.getlength(text) > room:
        starts = (f"{text[:end]}.." for end in range(len(text) - 1, 0, -1))
        text = next((start for start in starts if font.getlength(start) <= room), "")
    size = min(round(font.getlength(text)) + 2 * margin, max_width), label_height(font_size)
    label, place = Image.new("RGB", size, colour), (margin, round(ABOVE_BASELINE * font_size))
    ImageDraw.Draw(label).text(place, text, fill=ink_on(colour), font=font, anchor="ls")
    return np.array(label).reshape(size[1], size[0], 3)  # an empty image has no shape


def _side(image_size: tuple[int, int]) -> float:
    """Return the mean side; less for long strips, which are never viewed as a whole."""
    return min(sum(image_size) / 2, 3 * min(image_size))


def _draw_outline(image: np.ndarray, box: Sequence[int], line_width: int, colour: RGB) -> None:
    """Draw a box outline, thinner for small boxes; at least one pixel shows."""
    height, width = image.shape[:2]
    left, top = min(box[0], width - 1), min(box[1], height - 1)
    right, bottom = max(box[2], left + 1), max(box[3], top + 1)
    line = max(min(line_width, min(right - left, bottom - top) // LINES_IN_BOX), 1)
    left, top = max(left - line // 2, 0), max(top - line // 2, 0)
    right, bottom = min(right + line // 2, width), min(bottom + line // 2, height)
    for part in (
        image[top : top + line, left:right],
        image[max(bottom - line, top) : bottom, left:right],
        image[top:bottom, left : left + line],
        image[top:bottom, max(right - line, left) : right],
    ):
        part[:] = colour


def draw_masks(image: np.ndarray, masks: Ragged, class_index: np.ndarray) -> None:
    """Draw K masks on an image (H, W, 3) uint8 RGB, in place and half transparent.

    The first mask on a pixel is drawn, in the colour of its class.
    """
    plain = image.copy()
    size = image.shape[0], image.shape[1]
    width = 2 * max(default_line_width(size) // 2, 1) + 1
    for runs, index in zip(reversed(masks.rows()), class_index[::-1].tolist(), strict=True):
        top, left, pixels = window_of_runs(runs, size)
        if not pixels.size:
            continue
        part = np.s_[top : top + pixels.shape[0], left : left + pixels.shape[1]]
        colour = np.array(class_colour(index), np.uint8)
        brush = np.ones((width, width), np.uint8)
        filled = np.ascontiguousarray(pixels, np.uint8)
        inside = cv2.erode(filled, brush, borderType=cv2.BORDER_CONSTANT, borderValue=(0,))
        tinted = cv2.addWeighted(plain[part], 0.5, np.full_like(plain[part], colour), 0.5, 0)
        image[part][pixels] = colour
        cv2.copyTo(tinted, np.asarray(inside, np.uint8), image[part])


@cache
def font_files() -> tuple[str, ...]:
    import matplotlib
    from matplotlib import font_manager

    def rank(path: str) -> tuple[int, str]:
        return sum(word in Path(path).name.lower() for word in LESS_PLAIN), path

    own = str(Path(matplotlib.get_data_path(), "fonts/ttf/DejaVuSans.ttf"))
    found = sorted(font_manager.findSystemFonts(), key=rank)
    usable = [path for path in found if not Path(path).name.lower().startswith(WITHOUT_LETTERS)]
    return (own, *usable[: MAX_FONTS - 1])


@cache
def characters_of(path: str) -> frozenset[str]:
    """Return the characters in a font file; empty if it is unusable."""
    from matplotlib.ft2font import FT2Font

    try:
        ImageFont.truetype(path, 10)  # bitmap fonts may lack this size
        return frozenset(map(chr, FT2Font(path).get_charmap()))
    # FreeType and matplotlib raise arbitrary errors for damaged tables; try the next font.
    except Exception as error:
        log.debug("skipping font %s: %s", path, error)
        return frozenset()


@lru_cache(maxsize=4096)
def font_for(text: str) -> str | None:
    """Return the first font file with all characters of a text, or None."""
    return next((path for path in font_files() if characters_of(path).issuperset(text)), None)


@lru_cache(maxsize=32)
def sized(path: str, size: int) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(path, size)


@lru_cache(maxsize=4096)
def drawable_name(name: str, class_index: int) -> str:
    """Return a class name as one line, or "class 3", for example, if no font has it."""
    shown = one_line(name)
    if font_for(shown + DIGITS):
        return shown
    advise_fonts()
    return f"class {class_index}"


def one_line(text: str) -> str:
    """Return a text as one line in NFC."""
    return unicodedata.normalize("NFC", printable(text))


@cache
def advise_fonts() -> None:
    """Log once that some class names cannot be drawn."""
    log.warning(
        "no installed font has all characters of some class names, so these are drawn as numbers; "
        "install fonts, on Debian and Ubuntu fonts-noto-cjk for Chinese, Japanese and Korean, else "
        "fonts-noto-core"
    )
