"""Sources of frames: image files, videos, cameras, streams."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

Kind = Literal["image", "video", "live"]


class Frame(NamedTuple):
    """An image that something is to be found in, and where it comes from."""

    image: np.ndarray  # (H, W, 3) uint8 RGB, upright according to EXIF or the video
    source: Path | str  # the file; else a camera, URL, or a name for an image in memory
    number: int | None = None  # frame number in display order, from 0; None for an image
    seconds: float | None = None  # a video's frame is shown so long after its start


class Source(ABC):
    """One image file, video, camera or stream.

    `frames` of images may run in several threads at once; of any other source in one, once.

    Attributes:
        kind: an image has one frame; a live source gives the newest one and leaves out others.
        name: the file, camera or URL, as messages show it; a URL without its password.
        rate: frames per second on average, known from the first frame on; None if unknown.
        num_frames: how many it will give, known from the first one on; None if unknown.
    """

    kind: Kind = "image"
    name: Path | str
    rate: Fraction | None = None
    num_frames: int | None = None

    @abstractmethod
    def frames(self) -> Iterator[Frame]:
        """Yield its frames in order.

        Raises:
            BrokenSourceError: there are no frames, or the next one cannot be read; earlier ones
                have been yielded.
            UserError: a package is absent that it needs.
        """

    def close(self) -> None:
        """End `frames`, from any thread: no frame follows, and threads that wait for one wake up.

        Images need no end: they are read at once.
        """
        return None
