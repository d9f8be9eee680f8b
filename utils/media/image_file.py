"""Image files -> frames, as the datasets read them."""

from __future__ import annotations

import io
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import BinaryIO

import cv2
import numpy as np

from utils.data.image.being_read import read_as
from utils.data.image.decoding import OtherSizeError, decode_bytes
from utils.data.image.header import (
    BrokenImageError,
    ImageHeader,
    check_complete,
    check_size,
    read_header,
)
from utils.data.image.limits import MAX_IMAGE_BYTES
from utils.files.regular import open_regular
from utils.media.frame import Frame
from utils.media.source import BrokenSourceError, Kind

# Kinds of which a decoder may make up what a file lacks.
CHECKED = ("JPEG", "PNG")


class ImageFile:
    """An image file; an animated one is its first frame."""

    kind: Kind = "image"
    rate: Fraction | None = None
    num_frames: int | None = 1

    def __init__(self, path: Path | str, max_pixels: int) -> None:
        self._path = path  # of 100,000 files as many are made before the first is read
        self._max_pixels = max_pixels

    @property
    def name(self) -> Path:
        return Path(self._path)

    def frames(self) -> Iterator[Frame]:
        """Yield the image."""
        try:
            image = read_as(self.name, self._read)
        except OSError as error:
            raise BrokenSourceError(error.strerror or str(error)) from error
        yield Frame(image, self.name)

    def _read(self) -> np.ndarray:
        with open_regular(self._path, MAX_IMAGE_BYTES) as file:
            _checked_header(file, self._max_pixels)  # before a large file is read
            file.seek(0)
            content = file.read()
        return decode_image(content, self._max_pixels)

    def close(self) -> None:
        """Do nothing: one image is soon read."""


def decode_image(content: bytes | bytearray | memoryview, max_pixels: int) -> np.ndarray:
    """Decode the bytes of an image file, (H, W, 3) uint8 RGB, upright as EXIF says.

    Gray becomes RGB and 16 bits become 8; what shows through is white.

    Raises:
        BrokenSourceError: no image, a damaged one, or one of too many pixels, which are then not
            decoded.
    """
    file = io.BytesIO(content)
    header = _checked_header(file, max_pixels)
    try:
        if header.kind in CHECKED:
            check_complete(file, header.kind)
        image = decode_bytes(np.frombuffer(content, np.uint8), header.size)
    except (BrokenImageError, OtherSizeError) as error:
        raise BrokenSourceError(str(error)) from error
    return cv2.cvtColor(image, cv2.COLOR_BGR2RGB, dst=image)


def _checked_header(file: BinaryIO, max_pixels: int) -> ImageHeader:
    """Return the header of an image that is decoded; BrokenSourceError for any other."""
    try:
        header = read_header(file)
        check_size(header.size, max_pixels)
    except BrokenImageError as error:
        raise BrokenSourceError(str(error)) from error
    return header
