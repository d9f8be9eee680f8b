"""Sources of frames: image files, videos, cameras, streams."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

Kind = Literal["image", "video", "live"]


class Frame(NamedTuple):
    image: np.ndarray  # (H, W, 3) uint8 RGB, upright according to EXIF or the video
    source: Path | str  # the file; else a camera, URL, or a name for an image in memory
    number: int | None = None  # frame number in display order, from 0; None for an image
    seconds: float | None = None  # since the start of a video


class Source(ABC):
    """An image file, video, camera or stream.

    Threads may iterate over several images at once, but over any other source only one, once.
    """

    kind: Kind = "image"  # has one frame; a live source yields the newest frame and skips others
    name: Path | str  # file, camera or URL for messages; a URL without its password
    # Known from the first frame on; None if unknown.
    rate: Fraction | None = None  # average frames per second
    num_frames: int | None = None

    @abstractmethod
    def frames(self) -> Iterator[Frame]:
        """Yield frames in order; BrokenSourceError where reading fails, UserError for a package."""

    def close(self) -> None:
        """End `frames` from any thread and wake up its readers; images need no end."""
        return None
