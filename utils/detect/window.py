"""A window that shows images while they are made."""

from __future__ import annotations

import os
import sys

import cv2
import numpy as np

from utils.errors import UserError
from utils.text import printable

SCREENS = ("DISPLAY", "WAYLAND_DISPLAY")  # one of them names the screen, on Linux
WITHOUT = "leave it out, and the images are in the run's folder"


def require_window(flag: str) -> None:
    """Raise UserError if no window can be shown."""
    if not cv2.currentUIFramework():
        raise UserError(
            f"{flag}: OpenCV {cv2.__version__} has no windows here, as it is the headless build; "
            f"{WITHOUT}"
        )
    if sys.platform == "linux" and not any(os.environ.get(name) for name in SCREENS):
        raise UserError(f"{flag}: there is no screen, {' and '.join(SCREENS)} are unset; {WITHOUT}")


class Window:
    """One window; only for the main thread."""

    def __init__(self, title: str) -> None:
        self._title = printable(title)

    def show(self, image: np.ndarray) -> bool:
        """Show an image (H, W, 3) uint8 RGB; return whether q or Esc asks for the end."""
        cv2.imshow(self._title, cv2.cvtColor(image, cv2.COLOR_RGB2BGR))
        return cv2.waitKey(1) & 0xFF in (ord("q"), 27)
