"""--view-img: a window where there can be one, else what to do."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from duet.utils.detect.pipeline.report import SCREENS, Window, require_window
from duet.utils.errors import UserError


def test_the_headless_opencv_is_refused_with_what_to_do(monkeypatch):
    monkeypatch.setattr(cv2, "currentUIFramework", lambda: "")
    with pytest.raises(UserError, match="--view-img: OpenCV .* headless build, .*; leave it out"):
        require_window("--view-img")


def test_a_machine_without_a_screen_is_refused(monkeypatch):
    monkeypatch.setattr(cv2, "currentUIFramework", lambda: "QT5")
    for name in SCREENS:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UserError, match="no display: DISPLAY and WAYLAND_DISPLAY are unset"):
        require_window("--view-img")
    monkeypatch.setenv("DISPLAY", ":0")
    require_window("--view-img")


@pytest.mark.parametrize(
    ("key", "ends"), [(-1, False), (ord("x"), False), (ord("q"), True), (27, True)]
)
def test_the_window_shows_the_image_and_listens_for_q(monkeypatch, key, ends):
    shown = []
    monkeypatch.setattr(cv2, "imshow", lambda title, image: shown.append((title, image)))
    monkeypatch.setattr(cv2, "waitKey", lambda milliseconds: key)
    red = np.zeros((2, 2, 3), np.uint8) + np.uint8([255, 0, 0])
    assert Window("a\x1b").show(red) is ends
    ((title, image),) = shown
    assert title == r"a\x1b" and image[0, 0].tolist() == [0, 0, 255]
