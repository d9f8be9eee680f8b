"""Images from a caller's program -> frames: files, encoded bytes, arrays, Pillow images."""

from __future__ import annotations

import os
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from PIL import Image, ImageOps

from utils.data.image.pillow_image import as_bgr, over_white
from utils.errors import UserError
from utils.media.frame import Frame
from utils.media.image_file import ImageFile, decode_image
from utils.media.source import BrokenSourceError, Kind, require_size
from utils.screen.text import printable

TAKEN = (
    "accepted: a file name, the bytes of an image file, a NumPy array (H, W, 3), (H, W, 4) or "
    "(H, W) of uint8 in RGB order, a PIL image"
)


def as_list(images: Any) -> list[Any]:
    """Return the images of a list, a tuple or an array (B, H, W, 3), else the one that is given.

    Raises:
        UserError: an iterator, or an open file.
    """
    if isinstance(images, (list, tuple)) or (isinstance(images, np.ndarray) and images.ndim == 4):
        return list(images)
    if hasattr(images, "read"):
        raise UserError(f"an open file is not taken; give what its read() returns; {TAKEN}")
    if hasattr(images, "__next__"):
        raise UserError("an iterator of images is for detector.stream(images); or give a list")
    return [images]


class GivenImage:
    """An image in memory, or of a file, as a source.

    Attributes:
        name: of the file; another image is called image<index>.
    """

    kind: Kind = "image"
    rate: Fraction | None = None
    num_frames: int | None = 1

    def __init__(self, image: Any, index: int, max_pixels: int) -> None:
        """Keep an image, one of `TAKEN`, and its place among those given."""
        self._image, self._max_pixels = image, max_pixels
        is_file = isinstance(image, (str, os.PathLike))
        self.name = os.fsdecode(image) if is_file else f"image{index}"

    def frame(self) -> Frame:
        """Return the image; UserError if it is not one, or names the file that cannot be read."""
        try:
            (frame,) = self.frames()
        except BrokenSourceError as error:
            raise UserError(f"{printable(self.name)}: {error}") from error
        return frame

    def frames(self) -> Iterator[Frame]:
        """Yield the image; UserError if it is not one."""
        image, name = self._image, self.name
        if isinstance(image, (str, os.PathLike)):
            if "://" in name:
                raise UserError(
                    f"{image}: nothing is downloaded; detector.stream takes video streams"
                )
            yield from ImageFile(Path(name), self._max_pixels).frames()
        elif isinstance(image, (bytes, bytearray, memoryview)):
            yield Frame(decode_image(bytes(image), self._max_pixels), name)
        elif isinstance(image, Image.Image):
            source = getattr(image, "filename", "") or name
            yield Frame(_from_pillow(image, name, self._max_pixels), source)
        elif isinstance(image, np.ndarray):
            yield Frame(as_rgb(image, name), name)
        else:
            raise UserError(f"{name} is a {type(image).__name__}; {TAKEN}")

    def close(self) -> None:
        """Do nothing: one image is soon read."""


def as_rgb(image: np.ndarray, name: str) -> np.ndarray:
    """Return an array (H, W, 3), (H, W, 4) or (H, W) as (H, W, 3), over white.

    Raises:
        UserError: another shape or dtype, or no pixels.
    """
    shape = image.shape
    if image.dtype != np.uint8:
        raise UserError(f"{name} is an array of {image.dtype}, not uint8; {TAKEN}")
    if len(shape) not in (2, 3) or (len(shape) == 3 and shape[2] not in (3, 4)) or not image.size:
        first = len(shape) == 3 and shape[0] in (3, 4)
        hint = "; .transpose(1, 2, 0) puts its channels last" if first else ""
        raise UserError(f"{name} is an array of shape {shape}; {TAKEN}{hint}")
    if image.ndim == 2:
        return np.repeat(image[..., None], 3, axis=2)
    if shape[2] == 4:
        image = over_white(image[..., :3], image[..., 3])
    return np.ascontiguousarray(image)


def _from_pillow(image: Image.Image, name: str, max_pixels: int) -> np.ndarray:
    """Return Pillow's image as (H, W, 3) uint8 RGB, upright as its EXIF says."""
    if image.mode in ("I", "F"):
        raise UserError(f"{name} is a PIL image of mode {image.mode}; convert it to RGB before")
    require_size((image.height, image.width), max_pixels)
    try:
        upright = ImageOps.exif_transpose(image)
        return cv2.cvtColor(as_bgr(upright), cv2.COLOR_BGR2RGB)
    except OSError as error:  # it is read and decoded only now
        raise BrokenSourceError(str(error)) from error
