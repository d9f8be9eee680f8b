"""Images with boxes on a page: cut out, made small, the boxes drawn by the browser.

A crop is part of the page as a data URI. Its boxes are SVG over it, so that lines stay sharp and
may be dashed. The bytes of all crops together are bounded.

Before: whoever has an image and something to show on it. After: `document.py`.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import cv2
import numpy as np

from utils.drawing.colours import RGB, ink_on
from utils.page.blocks import Html, text

MAX_BYTES = 8 << 20  # of a page's crops: it is sent by mail, and opened on phones
LONG_SIDE = 320  # pixels: a screen of double density shows them as 160, one of a phone's columns
QUALITY = 78  # of WebP, from 0 to 100
MAX_BOXES = 60  # of a crop; more are one blot
LONGEST_NAME = 24  # characters beside a box
LETTERS = 0.06  # the height of a name, of the long side of a crop
CONTEXT = 1.0  # the margin around an object, of its own long side
LEAST_SIDE = 4.0  # of a box, in pixels of a crop
MIN_VIEW = 64  # pixels of the image; with less one does not see where an object lies


class Box(NamedTuple):
    """A box on a crop."""

    box_xyxy: Sequence[float]  # pixels of the image, which it may leave
    colour: RGB
    name: str = ""  # written beside it
    is_dashed: bool = False


class View(NamedTuple):
    """What a crop shows, pixels of the image; it may reach over the image's edge."""

    left: int
    top: int
    right: int
    bottom: int


def whole(size: tuple[int, int]) -> View:
    """Return the view of a whole image (height, width)."""
    return View(0, 0, size[1], size[0])


def around(box_xyxy: Sequence[float], size: tuple[int, int]) -> View:
    """Return a square around an object and its surroundings, as far as it lies in the image.

    Args:
        box_xyxy: pixels; what is far outside the image counts as at its edge.
        size: (height, width) of the image.
    """
    left, top, right, bottom = _near_image(box_xyxy, size)
    side = max((right - left) * (1 + 2 * CONTEXT), (bottom - top) * (1 + 2 * CONTEXT), MIN_VIEW)
    x, y = (left + right) / 2, (top + bottom) / 2
    horizontal = _within(x - side / 2, x + side / 2, left, right, size[1])
    vertical = _within(y - side / 2, y + side / 2, top, bottom, size[0])
    return View(horizontal[0], vertical[0], horizontal[1], vertical[1])


def _near_image(box_xyxy: Sequence[float], size: tuple[int, int]) -> list[float]:
    """Return a box with its corners at most half a side outside the image."""
    sides = np.array([size[1], size[0]] * 2, np.float64)
    box = np.nan_to_num(np.asarray(box_xyxy, np.float64))
    return np.clip(box, -sides / 2, 1.5 * sides).tolist()


def _within(
    low: float, high: float, box_low: float, box_high: float, length: int
) -> tuple[int, int]:
    """Return a range moved into the image if possible; it leaves the image only as the box does."""
    margin = (box_high - box_low) * 0.1
    lowest, highest = min(box_low - margin, 0.0), max(box_high + margin, length)
    if box_low >= 0:
        lowest = 0.0
    if box_high <= length:
        highest = length
    moved = max(lowest - low, 0.0) - max(high - highest, 0.0)
    low, high = max(low + moved, lowest), min(high + moved, highest)
    return int(np.floor(low)), max(int(np.ceil(high)), int(np.floor(low)) + 1)


class CropSheet:
    """The crops of a page, up to a number of bytes together."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._bytes_left = max_bytes
        self.left_out = 0  # crops for which there was no room

    def crop(
        self,
        image: np.ndarray,
        boxes: Sequence[Box],
        title: str,
        details: Sequence[str] = (),
        view: View | None = None,
    ) -> Html:
        """Return a crop with its boxes and the words below it; "" when the page is full.

        Args:
            image: (H, W, 3) uint8, RGB.
            boxes: the most important first.
            title: the first line below.
            details: lines that follow.
            view: the part to show; None for all of the image.
        """
        size = image.shape[0], image.shape[1]
        figure = _figure(image, boxes, title, details, view or whole(size))
        return self._counted(figure)

    def without_image(self, title: str, details: Sequence[str] = ()) -> Html:
        """Return the words for an image that cannot be shown."""
        return self._counted(
            Html(
                f'<figure class="crop"><div class="none"></div>{_caption(title, details)}</figure>'
            )
        )

    def _counted(self, figure: Html) -> Html:
        if self._bytes_left < len(figure):
            self._bytes_left = 0  # else a small one later would find room, and the order be odd
            self.left_out += 1
            return Html("")
        self._bytes_left -= len(figure)
        return figure


def crop_grid(crops: Iterable[Html], in_pairs: bool = False) -> Html:
    """Return crops side by side, as many as the width allows; "" of none.

    Args:
        in_pairs: an even number in each row.
    """
    shown, pairs = "".join(crops), " pairs-of-crops" if in_pairs else ""
    return Html(f'<div class="crops{pairs}">{shown}</div>' if shown else "")


def _figure(
    image: np.ndarray, boxes: Sequence[Box], title: str, details: Sequence[str], view: View
) -> Html:
    scale = min(LONG_SIDE / max(view.right - view.left, view.bottom - view.top), 1.0)
    width, height = (view.right - view.left) * scale, (view.bottom - view.top) * scale
    names = ", ".join(dict.fromkeys(box.name for box in boxes[:MAX_BOXES] if box.name))
    described = text(f"{title}: {names}" if names else title)
    from_below = reversed(boxes[:MAX_BOXES])
    drawn = "".join(_drawn(box, view, scale, max(width, height)) for box in from_below)
    return Html(
        f'<figure class="crop"><svg viewBox="0 0 {width:.1f} {height:.1f}" role="img" '
        f'aria-label="{described}">{_part(image, view, scale)}{drawn}</svg>'
        f"{_caption(title, details)}</figure>"
    )


def _caption(title: str, details: Sequence[str]) -> str:
    lines = "".join(f"<span>{text(line)}</span>" for line in details if line)
    return f"<figcaption><b>{text(title)}</b>{lines}</figcaption>"


def _part(image: np.ndarray, view: View, scale: float) -> str:
    """Return the part of the image in a view; it may be less than the view."""
    left, top = max(view.left, 0), max(view.top, 0)
    part = image[top : max(view.bottom, 0), left : max(view.right, 0)]
    if not part.size:
        return ""
    height, width = part.shape[0] * scale, part.shape[1] * scale
    if scale < 1:
        size_wh = max(round(width), 1), max(round(height), 1)
        part = cv2.resize(part, size_wh, interpolation=cv2.INTER_AREA)
    _, content = cv2.imencode(".webp", part[..., ::-1], [cv2.IMWRITE_WEBP_QUALITY, QUALITY])
    return (
        f'<image x="{(left - view.left) * scale:.1f}" y="{(top - view.top) * scale:.1f}" '
        f'width="{width:.1f}" height="{height:.1f}" preserveAspectRatio="none" '
        f'href="data:image/webp;base64,{base64.b64encode(content.tobytes()).decode()}"/>'
    )


def _drawn(box: Box, view: View, scale: float, long_side: float) -> str:
    sides = np.array([view.left, view.top] * 2)
    moved = (np.asarray(box.box_xyxy, np.float64) - sides) * scale
    if not np.isfinite(moved).all():
        return ""
    # A line far outside is not seen; browsers take no numbers of any size.
    left, top, right, bottom = np.clip(moved, -2 * long_side, 3 * long_side).tolist()
    left, right = _visible(left, right)
    top, bottom = _visible(top, bottom)
    place = f'x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" height="{bottom - top:.1f}"'
    dashed = " dashed" if box.is_dashed else ""
    return (
        f'<g style="--colour:{_css(box.colour)};--ink:{_css(ink_on(box.colour))}">'
        f'<rect class="edge{dashed}" {place}/><rect class="line{dashed}" {place}/>'
        f"{_name(box, left, top, long_side)}</g>"
    )


def _visible(low: float, high: float) -> tuple[float, float]:
    """Return the ends of a side in order, and a little apart: browsers draw no box without area."""
    low, high = min(low, high), max(low, high)
    missing = max(LEAST_SIDE - (high - low), 0.0)
    return low - missing / 2, high + missing / 2


def _css(colour: RGB) -> str:
    return "rgb({},{},{})".format(*colour)


def _name(box: Box, left: float, top: float, long_side: float) -> str:
    if not box.name:
        return ""
    name = box.name if len(box.name) <= LONGEST_NAME else f"{box.name[:LONGEST_NAME]}..."
    letters = LETTERS * long_side
    above = top - 0.3 * letters
    y = above if above > letters else max(top, 0) + 1.1 * letters
    x = max(left, 0) + 0.2 * letters
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{letters:.1f}">{text(name)}</text>'
