"""Images as a caller's program has them -> frames: files, encoded bytes, arrays, Pillow's images.

Before: `models.load` and hubconf.py. After: `models/inference/api.py` and `hub.py` beside it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from PIL import Image, ImageOps

from utils.data.image.eight_bits import over_white, to_eight_bits
from utils.data.image.header import BrokenImageError, check_size
from utils.data.image.pillow_image import as_bgr
from utils.errors import UserError
from utils.media.frame import Frame
from utils.media.image_file import ImageFile, decode_image
from utils.media.source import BrokenSourceError, Kind

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


def given_frame(image: Any, index: int, max_pixels: int) -> Frame:
    """Return an image as a frame.

    Args:
        image: one of `TAKEN`.
        index: its place among those given; an image without a name is called image<index>.

    Raises:
        UserError: what is no image.
        BrokenSourceError: an image file that cannot be read or decoded, or is too large.
    """
    if isinstance(image, (str, os.PathLike)):
        if "://" in str(image):
            raise UserError(f"{image}: nothing is downloaded; detector.stream takes video streams")
        return _file_frame(os.fspath(image), max_pixels)
    name = f"image{index}"
    if isinstance(image, (bytes, bytearray, memoryview)):
        return Frame(decode_image(bytes(image), max_pixels), name)
    if isinstance(image, Image.Image):
        source = getattr(image, "filename", "") or name
        return Frame(_from_pillow(image, name, max_pixels), source)
    if isinstance(image, np.ndarray):
        return Frame(as_rgb(image, name), name)
    raise UserError(f"{name} is a {type(image).__name__}; {TAKEN}")


def given_name(image: Any, index: int) -> str:
    """Return the name of an image that cannot be read."""
    return os.fsdecode(image) if isinstance(image, (str, os.PathLike)) else f"image{index}"


class GivenImage:
    """An image in memory as a source."""

    kind: Kind = "image"
    rate: Fraction | None = None
    num_frames: int | None = 1

    def __init__(self, image: Any, index: int, max_pixels: int) -> None:
        """Keep an image; the arguments are those of `given_frame`."""
        self._given = image, index, max_pixels
        self.name = given_name(image, index)

    def frames(self) -> Iterator[Frame]:
        """Yield the image; UserError if it is not one."""
        yield given_frame(*self._given)

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
        hint = "; .transpose(1, 2, 0) puts its channels last" if _channels_first(shape) else ""
        raise UserError(f"{name} is an array of shape {shape}; {TAKEN}{hint}")
    if image.ndim == 2:
        return np.repeat(image[..., None], 3, axis=2)
    if shape[2] == 4:
        image = over_white(image[..., :3], image[..., 3])
    return np.ascontiguousarray(image)


def _channels_first(shape: Sequence[int]) -> bool:
    return len(shape) == 3 and shape[0] in (3, 4)


def _file_frame(name: str | bytes, max_pixels: int) -> Frame:
    (frame,) = ImageFile(Path(os.fsdecode(name)), max_pixels).frames()
    return frame


def _from_pillow(image: Image.Image, name: str, max_pixels: int) -> np.ndarray:
    """Return Pillow's image as (H, W, 3) uint8 RGB, upright as its EXIF says."""
    if image.mode in ("I", "F"):
        raise UserError(f"{name} is a PIL image of mode {image.mode}; convert it to RGB before")
    try:
        check_size((image.height, image.width), max_pixels)
        upright = ImageOps.exif_transpose(image)
        if upright.mode.startswith("I;16"):  # which Pillow would clip at 255
            return as_rgb(to_eight_bits(np.asarray(upright)), name)
        return cv2.cvtColor(as_bgr(upright), cv2.COLOR_BGR2RGB)
    except (BrokenImageError, OSError) as error:  # it is read and decoded only now
        raise BrokenSourceError(str(error)) from error
