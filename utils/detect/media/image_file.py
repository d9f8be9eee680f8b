"""Image files, and images from a caller's program (bytes, arrays, Pillow images) -> frames."""

import io
import os
from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np
from PIL import Image, ImageOps

from duet.utils.data.image.decoding import as_bgr, decode_bytes, over_white, read_as
from duet.utils.data.image.header import check_complete, check_size, read_header
from duet.utils.detect.media.source import Frame, Source
from duet.utils.errors import BrokenSourceError, UserError
from duet.utils.files.regular import read_bytes
from duet.utils.image_limits import MAX_IMAGE_BYTES
from duet.utils.text import printable

# Kinds whose decoders may fill in missing data without an error.
CHECKED = ("JPEG", "PNG")
TAKEN = (
    "accepted: a file name, the bytes of an image file, a NumPy array (H, W, 3), (H, W, 4) or "
    "(H, W) of uint8 in RGB order, a PIL image"
)


class ImageFile(Source):
    """An image file; an animated one is its first frame."""

    num_frames = 1

    def __init__(self, path: Path, max_pixels: int) -> None:
        self._path = self.name = path
        self._max_pixels = max_pixels

    def frames(self) -> Iterator[Frame]:
        try:
            image = read_as(self._path, self._read)
        except OSError as error:
            raise BrokenSourceError(error.strerror or str(error)) from error
        yield Frame(image, self._path)

    def _read(self) -> np.ndarray:
        return decode_image(read_bytes(self._path, MAX_IMAGE_BYTES), self._max_pixels)


def decode_image(content: bytes | bytearray | memoryview, max_pixels: int) -> np.ndarray:
    """Decode an image file to (H, W, 3) uint8 RGB, upright, over white; or BrokenSourceError."""
    file = io.BytesIO(content)
    header = read_header(file)
    check_size(header.size, max_pixels)
    if header.kind in CHECKED:
        check_complete(file, header.kind)
    image = decode_bytes(np.frombuffer(content, np.uint8), header.size)
    return cv2.cvtColor(image, cv2.COLOR_BGR2RGB, dst=image)


def as_list(images: object) -> list[object]:
    """Return the images of a list, tuple or array (B, H, W, 3), or one image; no iterators."""
    if isinstance(images, (list, tuple)) or (isinstance(images, np.ndarray) and images.ndim == 4):
        return list(images)
    if hasattr(images, "__next__") and not hasattr(images, "read"):
        raise UserError("an iterator needs detector.stream(images); or pass a list")
    return [images]


class GivenImage(Source):
    """An image in memory, as a source with the name image<index>."""

    num_frames = 1

    def __init__(self, image: object, index: int, max_pixels: int) -> None:
        self._image, self._max_pixels = image, max_pixels
        self.name: str = f"image{index}"

    def frames(self) -> Iterator[Frame]:
        image, name = self._image, self.name
        if isinstance(image, (bytes, bytearray, memoryview)):
            yield Frame(decode_image(bytes(image), self._max_pixels), name)
        elif isinstance(image, Image.Image):
            source = getattr(image, "filename", "") or name
            yield Frame(_from_pillow(image, name, self._max_pixels), source)
        elif isinstance(image, np.ndarray):
            yield Frame(as_rgb(image, name), name)
        else:
            raise UserError(f"{name} is of type {type(image).__name__}; {TAKEN}")


def read_image(image: object, index: int, max_pixels: int) -> Frame:
    """Read one of `TAKEN`; UserError names an image that cannot be read."""
    source: Source = GivenImage(image, index, max_pixels)
    if isinstance(image, (str, os.PathLike)):
        if "://" in os.fsdecode(image):
            raise UserError(f"{image}: nothing is downloaded; detector.stream takes video streams")
        source = ImageFile(Path(os.fsdecode(image)), max_pixels)
    try:
        (frame,) = source.frames()
    except BrokenSourceError as error:
        raise UserError(f"{printable(str(source.name))}: {error}") from error
    return frame


def as_rgb(image: np.ndarray, name: str) -> np.ndarray:
    """Copy an array (H, W, 3), (H, W, 4) or (H, W) to (H, W, 3), over white; else UserError."""
    shape = image.shape
    if image.dtype != np.uint8:
        raise UserError(f"{name} is an array of {image.dtype}, not uint8; {TAKEN}")
    if len(shape) not in (2, 3) or (len(shape) == 3 and shape[2] not in (3, 4)) or not image.size:
        raise UserError(f"{name} is an array of shape {shape}; {TAKEN}")
    if image.ndim == 2:
        return np.repeat(image[..., None], 3, axis=2)
    if shape[2] == 4:
        image = over_white(image[..., :3], image[..., 3])
    return np.array(image, order="C")  # the caller may use its array again


def _from_pillow(image: Image.Image, name: str, max_pixels: int) -> np.ndarray:
    if image.mode in ("I", "F"):
        raise UserError(f"{name} is a PIL image of mode {image.mode}; convert it to RGB first")
    check_size((image.height, image.width), max_pixels)
    try:
        upright = ImageOps.exif_transpose(image)
        return cv2.cvtColor(as_bgr(upright), cv2.COLOR_BGR2RGB)
    # It is read and decoded only now; ValueError: closed, or of a mode that is not converted.
    except (OSError, ValueError) as error:
        raise BrokenSourceError(str(error)) from error
