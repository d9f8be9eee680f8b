"""The kinds of image files: how each is recognised, and Pillow's class that reads its header.

Before: an open file. After: `header.py` and `pillow_image.py`.
"""

from __future__ import annotations

from typing import BinaryIO

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
PILLOWS_KINDS = ("AVIF", "GIF", HEIC)  # OpenCV decodes the others
START_BYTES = 256  # by which a file is recognised
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
    """Return AVIF or HEIC by the brands that a file says it keeps to.

    Source: ISO/IEC 14496-12, "File Type Box": its size, "ftyp", the brand, a version, more brands.
    """
    end = int.from_bytes(start[:4], "big")
    brands = [start[8:12], *(start[place : place + 4] for place in range(16, end, 4)[:60])]
    known = [_BRANDS[brand] for brand in brands if brand in _BRANDS]
    # Both also have brands that do not say how the pixels are coded.
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
