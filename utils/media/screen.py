"""The screen, or a part of it -> frames.

Before: `finding.py`. After: `live.py` takes the newest frames.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from utils.data.image.header import BrokenImageError, check_size
from utils.errors import UserError
from utils.media.live import Feed
from utils.media.source import BrokenSourceError
from utils.media.video_frames import TimedImage
from utils.optional import import_optional

_RATE = 30  # frames a second, at most
_FORMS = "screen, screen N, screen LEFT TOP WIDTH HEIGHT, screen N LEFT TOP WIDTH HEIGHT"


class Region(NamedTuple):
    """A monitor, or a part of it."""

    monitor: int = 0  # 0: all together, as the library counts
    part: tuple[int, int, int, int] | None = None  # left, top, width, height in pixels


def parse_screen(argument: str) -> Region:
    """Return the region that --source screen ... names; UserError for another form."""
    words = argument.split()[1:]
    try:
        numbers = [int(word) for word in words]
    except ValueError:
        numbers = [-1]
    if len(numbers) not in (0, 1, 4, 5) or any(number < 0 for number in numbers):
        raise UserError(f"--source {argument}: accepted are {_FORMS}, in whole numbers")
    monitor = numbers.pop(0) if len(numbers) % 4 else 0
    left, top, width, height = numbers or (0, 0, 1, 1)
    if min(width, height) < 1:
        raise UserError(f"--source {argument}: a width and a height above 0 are needed")
    return Region(monitor, (left, top, width, height) if numbers else None)


@contextmanager
def open_screen(region: Region, max_pixels: int) -> Iterator[Feed]:
    """Open the screen.

    Raises:
        BrokenSourceError: there is none, or no such monitor.
        UserError: the package mss is absent.
    """
    mss = import_optional("mss", "--source screen")
    try:
        with mss.MSS() as screen:
            area = _area(region, screen.monitors, max_pixels)
            yield Feed(Fraction(_RATE), _images(screen, area))
    except mss.ScreenShotError as error:
        raise BrokenSourceError(f"the screen cannot be read: {error!s:.200}") from error


def _area(region: Region, monitors: list[dict[str, Any]], max_pixels: int) -> dict[str, int]:
    """Return the place of a region on the whole screen, in the library's form."""
    if region.monitor >= len(monitors):
        raise BrokenSourceError(f"there is no monitor {region.monitor}")
    monitor = monitors[region.monitor]
    left, top, width, height = region.part or (0, 0, monitor["width"], monitor["height"])
    try:
        check_size((height, width), max_pixels)
    except BrokenImageError as error:
        raise BrokenSourceError(str(error)) from error
    return {
        "left": monitor["left"] + left,
        "top": monitor["top"] + top,
        "width": width,
        "height": height,
    }


def _images(screen: Any, area: dict[str, int]) -> Iterator[TimedImage]:
    number = 0
    while True:
        start = time.monotonic()
        shot = np.asarray(screen.grab(area))  # BGRA
        yield TimedImage(np.ascontiguousarray(shot[..., 2::-1]), number, 0.0)
        number += 1
        time.sleep(max(0.0, start + 1 / _RATE - time.monotonic()))
