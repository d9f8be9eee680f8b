"""What gives frames: an image file, a video, a camera, a stream, the screen."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Literal, Protocol

from utils.data.image.header import BrokenImageError, check_size
from utils.media.frame import Frame

Kind = Literal["image", "video", "live"]


class BrokenSourceError(Exception):
    """Why a source gives no frames, or no more of them."""


class Source(Protocol):
    """One image file, video, camera, stream or screen.

    `frames` of image files may run in several threads at once; of any other source in one, once.
    """

    @property
    def kind(self) -> Kind:
        """An image has one frame; a live source gives the newest one and leaves out others."""

    @property
    def name(self) -> Path | str:
        """The file, camera or URL, as messages show it; a URL without its password."""

    @property
    def rate(self) -> Fraction | None:
        """Frames per second on average, known from the first frame on; None if unknown."""

    @property
    def num_frames(self) -> int | None:
        """How many frames it will give, known from the first one on; None if unknown."""

    def frames(self) -> Iterator[Frame]:
        """Yield its frames in order.

        Raises:
            BrokenSourceError: there are none, or what comes next cannot be read; frames before it
                have been given.
            UserError: a package is absent that it needs.
        """

    def close(self) -> None:
        """End `frames`, from any thread: no frame follows, and who waits for one is woken."""


def require_size(size: tuple[int, int], max_pixels: int) -> None:
    """Raise BrokenSourceError for an image (height, width) that has more pixels, or none."""
    try:
        check_size(size, max_pixels)
    except BrokenImageError as error:
        raise BrokenSourceError(str(error)) from error
