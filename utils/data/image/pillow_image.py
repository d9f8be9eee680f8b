"""What Pillow reads: kinds and how they are recognised, headers, all pixels but those of JPEGs."""

from __future__ import annotations

from typing import BinaryIO

import cv2
import numpy as np
from PIL import Image
from PIL.AvifImagePlugin import AvifImageFile
from PIL.BmpImagePlugin import BmpImageFile
from PIL.GifImagePlugin import GifImageFile
from PIL.ImageFile import ImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.TiffImagePlugin import TiffImageFile
from PIL.WebPImagePlugin import WebPImageFile

from utils.optional import import_optional

WHITE = 255
_ALPHA_MODES = ("LA", "La", "PA", "RGBA", "RGBa")
_DEEP_MODE = "I;16"
_ROWS = 64  # at a time, for the memory that 16 bits take


class _JpegHeader(JpegImageFile):
    """A JPEG whose EXIF is not read for its resolution, which Pillow would do without a bound."""

    def _read_dpi_from_exif(self) -> None:
        pass


HEIC = "HEIC"
# Their classes by name, not Image.open, which would try any kind it knows.
_CLASSES: dict[str, type[ImageFile]] = {
    "JPEG": _JpegHeader,  # first: nearly all images
    "AVIF": AvifImageFile,
    "BMP": BmpImageFile,
    "GIF": GifImageFile,
    "PNG": PngImageFile,
    "TIFF": TiffImageFile,
    "WEBP": WebPImageFile,
}
KINDS = (*sorted(_CLASSES), HEIC)
START_BYTES = 256  # enough to recognise a file
_BRANDS = {b"avif": "AVIF", b"avis": "AVIF"} | dict.fromkeys(
    (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"), HEIC
)


def recognise(start: bytes) -> str:
    """Return the kind of a file by its first bytes; "" for one that is not known here."""
    if start[4:8] == b"ftyp":
        return _by_brand(start)
    padded = start.ljust(16, b"\0")  # Pillow asks for the first bytes of each kind
    return next((kind for kind in _CLASSES if kind != "AVIF" and _accepts(kind, padded)), "")


def recognise_other(start: bytes) -> str:
    """Return the kind of a file that is not decoded here, if Pillow knows it; else ""."""
    Image.init()  # all kinds that Pillow knows
    padded = start.ljust(16, b"\0")
    return next((kind for kind in Image.ID if kind not in _CLASSES and _accepts(kind, padded)), "")


def _accepts(kind: str, start: bytes) -> bool:
    _, accepts = Image.OPEN[kind]
    return accepts is not None and accepts(start) is True


def _by_brand(start: bytes) -> str:
    """Return AVIF or HEIC by the brands that a file lists.

    Source: ISO/IEC 14496-12, "File Type Box": its size, "ftyp", the brand, a version, more brands.
    """
    end = int.from_bytes(start[:4], "big")
    brands = [start[8:12], *(start[place : place + 4] for place in range(16, end, 4)[:60])]
    known = [_BRANDS[brand] for brand in brands if brand in _BRANDS]
    # Both also have brands that leave the coding of the pixels open.
    return "AVIF" if "AVIF" in known else HEIC if known else ""


def open_image(kind: str, file: BinaryIO) -> ImageFile:
    """Read the header of a file of this kind.

    Raises:
        UserError: the package that reads HEIC is absent.
        Exception: any other, for a broken header; Pillow promises no list of them.
    """
    if kind == HEIC:
        image: ImageFile = import_optional("pi_heif", "a HEIC image").HeifImageFile(file)
        return image
    return _CLASSES[kind](file)  # type: ignore[arg-type]  # it reads and seeks


def as_bgr(image: Image.Image) -> np.ndarray:
    """Return a Pillow image as (H, W, 3) uint8 BGR, over white.

    Raises:
        Exception: its file is damaged; Pillow promises no list of what it raises.
    """
    if image.mode.startswith(_DEEP_MODE):
        return cv2.cvtColor(to_eight_bits(np.asarray(image)), cv2.COLOR_GRAY2BGR)
    # A key for transparency is kept as text in a palette or beside the pixels.
    if image.mode not in _ALPHA_MODES and "transparency" not in image.info:
        return cv2.cvtColor(np.asarray(image.convert("RGB")), cv2.COLOR_RGB2BGR)
    pixels = np.asarray(image if image.mode == "RGBA" else image.convert("RGBA"))
    return over_white(cv2.cvtColor(pixels, cv2.COLOR_RGBA2BGR), pixels[..., 3])


def to_eight_bits(image: np.ndarray) -> np.ndarray:
    """Return the 8 highest bits of those that an image uses, uint8.

    An image of 10, 12 or 14 bits is often stored as one of 16, in which it would be black. So the
    least even number of bits counts, 8 or more, that holds the largest value.

    Args:
        image: uint16.
    """
    used = max(8, int(image.max()).bit_length())
    eight = np.empty(image.shape, np.uint8)
    return np.right_shift(image, used + used % 2 - 8, out=eight, casting="unsafe")


def over_white(colours: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    """Return colours (H, W, 3) uint8 over white, as much as alpha (H, W) uint8 lets through.

    If alpha is 0 everywhere, it is ignored: the colours are returned as they are.
    """
    lowest, highest = int(alpha.min()), int(alpha.max())
    if lowest == WHITE or highest == 0:
        return colours
    mixed = np.empty_like(colours)
    for first in range(0, len(alpha), _ROWS):
        rows = slice(first, first + _ROWS)
        opacity = alpha[rows, :, None].astype(np.uint16)
        sums = colours[rows] * opacity + (WHITE * (WHITE - opacity) + WHITE // 2)
        mixed[rows] = sums // WHITE
    return mixed
