"""An image that something is to be found in: a file's, a video's at one moment, or a caller's."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np


class Frame(NamedTuple):
    """An image and where it comes from."""

    image: np.ndarray  # (H, W, 3) uint8 RGB, upright as EXIF or the video says
    source: Path | str  # the file; else a camera, URL, or a name for an image in memory
    number: int | None = None  # of a video's frame, counted from 0 as shown; None: image
    seconds: float | None = None  # a video's frame is shown so long after its start
