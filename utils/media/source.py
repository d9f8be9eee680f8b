"""What --source means: files, a folder, a pattern, a list -> sources, each of one or many frames.

Before: detect.py's flag. After: `models/inference/job.py` takes their frames.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import cv2
import numpy as np

from utils.data.image.decoding import decode_bytes
from utils.data.image.header import BrokenImageError, check_size, read_header
from utils.data.image.limits import MAX_IMAGE_BYTES
from utils.errors import UserError
from utils.files.regular import open_regular
from utils.media.frame import Frame


class BrokenSourceError(Exception):
    """Why a source gives no frames, or no more of them."""


class Source(Protocol):
    """One image file, video, camera or stream."""

    @property
    def name(self) -> Path | str:
        """The file, camera or URL, as messages show it."""

    @property
    def kind(self) -> str:
        """ "image", "video" or "live"."""

    def frames(self) -> Iterator[Frame]:
        """Yield its frames in order; BrokenSourceError where one cannot be read."""

    def close(self) -> None:
        """End its frames, also while another thread waits for one."""


class ImageFile:
    """An image file."""

    kind = "image"

    def __init__(self, path: Path, max_pixels: int) -> None:
        self.path = path
        self._max_pixels = max_pixels

    @property
    def name(self) -> Path:
        return self.path

    def frames(self) -> Iterator[Frame]:
        """Yield the image."""
        try:
            with open_regular(self.path, MAX_IMAGE_BYTES) as file:
                size = read_header(file).size
                check_size(size, self._max_pixels)
                file.seek(0)
                content = np.frombuffer(file.read(), np.uint8)
            image = decode_bytes(content, size)
        except OSError as error:
            raise BrokenSourceError(error.strerror or str(error)) from error
        except BrokenImageError as error:
            raise BrokenSourceError(str(error)) from error
        yield Frame(cv2.cvtColor(image, cv2.COLOR_BGR2RGB), self.path)

    def close(self) -> None:
        pass


def find_sources(argument: str, max_pixels: int, video_stride: int = 1) -> list[Source]:
    """Return what --source names; UserError where there is nothing."""
    path = Path(argument)
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.is_file())
    elif path.exists():
        files = [path]
    else:
        raise UserError(f"--source {argument}: no such file or folder")
    return [ImageFile(file, max_pixels) for file in files]
