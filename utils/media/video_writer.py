"""Frames -> a video file, at the times at which they are shown."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import cv2
import numpy as np


class VideoWriter:
    """Writes a video."""

    def __init__(self, path: Path, size: tuple[int, int], rate: Fraction | None) -> None:
        code = cv2.VideoWriter.fourcc(*"mp4v")
        self._writer = cv2.VideoWriter(str(path), code, float(rate or 25), (size[1], size[0]))

    def write(self, image: np.ndarray, seconds: float) -> None:
        """Add a frame."""
        self._writer.write(cv2.cvtColor(image, cv2.COLOR_RGB2BGR))

    def close(self) -> None:
        """Finish the file."""
        self._writer.release()
