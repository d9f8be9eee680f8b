"""A camera and the screen, with stand-ins for the hardware."""

from __future__ import annotations

from fractions import Fraction

import mss
import numpy as np
import pytest

from utils.media import feeds as captured
from utils.media.feeds import Region, parse_screen
from utils.media.finding import find_sources
from utils.media.source import BrokenSourceError

PIXELS = 10**6


class Camera:
    """Gives so many frames, BGR: blue at first."""

    def __init__(self, number_of_frames: int, rate: float = 29.97) -> None:
        self.left, self.rate, self.is_released = number_of_frames, rate, False

    def isOpened(self) -> bool:  # noqa: N802
        return self.left > 0

    def get(self, what: int) -> float:
        return self.rate

    def set(self, what: int, value: float) -> bool:
        return False

    def read(self):
        self.left -= 1
        image = np.zeros((20, 30, 3), np.uint8)
        image[..., 0] = 255
        return (True, image) if self.left >= 0 else (False, None)

    def release(self) -> None:
        self.is_released = True


def read_camera(monkeypatch, capture: Camera, max_pixels: int = PIXELS):
    monkeypatch.setattr(captured.cv2, "VideoCapture", lambda index: capture)
    with captured.open_camera(0, max_pixels) as feed:
        return feed.rate, next(iter(feed.images)), feed


def test_a_camera_gives_rgb(monkeypatch):
    capture = Camera(2)
    rate, image, _ = read_camera(monkeypatch, capture)
    assert (image.image == (0, 0, 255)).all() and capture.is_released
    assert rate == Fraction(2997, 100)


def test_a_camera_that_is_not_there_says_so(monkeypatch):
    with pytest.raises(BrokenSourceError, match="no such camera, or another program uses it"):
        read_camera(monkeypatch, Camera(0))


class Screen:
    """Two monitors side by side, 40x30 and 20x30 px; the gray of a pixel is its column."""

    monitors = (
        {"left": 0, "top": 0, "width": 60, "height": 30},
        {"left": 0, "top": 0, "width": 40, "height": 30},
        {"left": 40, "top": 0, "width": 20, "height": 30},
    )

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def grab(self, area):
        whole = np.zeros((30, 60, 4), np.uint8)
        whole[..., 2] = np.arange(60)  # red, of BGRA
        left, top = area["left"], area["top"]
        return whole[top : top + area["height"], left : left + area["width"]]


@pytest.mark.parametrize(
    ("argument", "shape", "first_column"),
    [
        ("screen", (30, 60, 3), 0),
        ("screen 1", (30, 40, 3), 0),
        ("screen 2", (30, 20, 3), 40),
        ("screen 5 6 12 14", (14, 12, 3), 5),
        ("screen 2 5 6 12 14", (14, 12, 3), 45),
    ],
)
def test_a_part_of_the_screen_is_grabbed_as_rgb(argument, shape, first_column, monkeypatch):
    monkeypatch.setattr(mss, "MSS", Screen)
    with captured.open_screen(parse_screen(argument), PIXELS) as feed:
        image = next(iter(feed.images)).image
    assert image.shape == shape and image.flags.c_contiguous
    assert tuple(image[0, 0]) == (first_column, 0, 0)


@pytest.mark.parametrize(
    ("region", "max_pixels", "reason"),
    [(Region(3), PIXELS, "no monitor 3"), (Region(0), 1799, "60x30 px.*--max-pixels")],
)
def test_what_cannot_be_grabbed_says_so(region, max_pixels, reason, monkeypatch):
    monkeypatch.setattr(mss, "MSS", Screen)
    with (
        pytest.raises(BrokenSourceError, match=reason),
        captured.open_screen(region, max_pixels) as feed,
    ):
        next(iter(feed.images))


def test_a_machine_without_a_screen_says_so(monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    (source,) = find_sources("screen", PIXELS)
    with pytest.raises(BrokenSourceError, match="the screen cannot be read"):
        list(source.frames())
