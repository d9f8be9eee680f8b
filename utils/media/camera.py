"""A camera of this machine -> frames.

Before: `finding.py`. After: `live.py` takes the newest frames. OpenCV opens it: it knows the
cameras of each system, and is always there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction

import cv2

from utils.data.image.header import BrokenImageError, check_size
from utils.media.live import Feed
from utils.media.source import BrokenSourceError
from utils.media.video_frames import TimedImage

_MOST_RATE = 1000  # what a driver may say in earnest


@contextmanager
def open_camera(index: int, max_pixels: int) -> Iterator[Feed]:
    """Open a camera by its number; BrokenSourceError if there is none, or another uses it."""
    capture = cv2.VideoCapture(index)
    try:
        if not capture.isOpened():
            raise BrokenSourceError("no such camera, or another program uses it")
        capture.set(cv2.CAP_PROP_BUFFERSIZE, 1)
        rate = capture.get(cv2.CAP_PROP_FPS)
        known = Fraction(rate).limit_denominator(1001) if 0 < rate < _MOST_RATE else None
        yield Feed(known, _images(capture, max_pixels))
    finally:
        capture.release()


def _images(capture: cv2.VideoCapture, max_pixels: int) -> Iterator[TimedImage]:
    number = 0
    while True:
        is_read, image = capture.read()
        if not is_read:
            raise BrokenSourceError("the camera gives no more frames")
        try:
            check_size(image.shape[:2], max_pixels)
        except BrokenImageError as error:
            raise BrokenSourceError(str(error)) from error
        yield TimedImage(cv2.cvtColor(image, cv2.COLOR_BGR2RGB), number, 0.0)
        number += 1
