"""The header of an image file: kind, size, orientation, and how its pixels are stored.

Before: the file. After: `utils/data/sources/labels.py`, which scans, and `decoding.py` beside this.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar, cast

from PIL.BmpImagePlugin import BmpImageFile
from PIL.ImageFile import ImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.TiffImagePlugin import ImageFileDirectory_v2

from utils.data.image.completeness import IncompleteError, require_complete
from utils.data.image.kinds import HEIC, KINDS, START_BYTES, open_image, recognise, recognise_other
from utils.data.image.limits import MAX_IMAGE_BYTES, MAX_PIXELS, MAX_SIDE, MIN_SIDE, MOST_PIXELS
from utils.data.image.orientation import (
    EXCHANGES_SIDES,
    UPRIGHT,
    known_orientation,
    undone_by,
)
from utils.data.image.pillow_image import has_alpha
from utils.data.image.png import BrokenPngError
from utils.data.image.tiff import BrokenTiffError, TiffPixels, check_tags, read_pixels
from utils.errors import UserError
from utils.files.regular import open_regular

_EXIF_ORIENTATION = 0x0112
# Measured: Chromium 149 shows these as they are stored, and turns JPEG, PNG and AVIF.
_NEVER_TURNED = ("WEBP",)
_PNG_BITS_AT = 24  # the byte of the header
_MAX_READS = 1 << 12
_MAX_HEADER_BYTES = 1 << 23

_Read = TypeVar("_Read")


class BrokenImageError(Exception):
    """Why an image file cannot be used."""


class ImageHeader(NamedTuple):
    """What an image file says of its pixels before they are decoded."""

    kind: str  # as Pillow calls it: "JPEG"
    size: tuple[int, int]  # (height, width) in pixels, upright
    orientation: int  # EXIF's, from which it is turned upright
    other_view: int  # the same for points of a program that does not turn it, or turns a WebP
    has_alpha: bool
    bits: int  # of a channel: 8 or fewer, or up to 16
    white_is_zero: bool  # of the numbers of a TIFF
    pixels: tuple[int, int]  # start and end of their bytes; 0 for what the header does not tell
    may_repeat_scans: bool  # a JPEG that codes its pixels in any number of passes


def read_image_size(path: Path, max_pixels: int = MAX_PIXELS) -> tuple[int, int]:
    """Return (height, width) in pixels as it is decoded, without decoding the image.

    Raises:
        BrokenImageError: no image, truncated, smaller than 10 px, or larger than max_pixels.
    """

    def checked(file: BinaryIO) -> tuple[int, int]:
        header = read_header(file)
        check_size(header.size, max_pixels)
        check_complete(file, header)
        return header.size

    return _read(path, checked)


def read_other_view(path: Path) -> int:
    """Return the `ImageHeader.other_view` of an image file; raise BrokenImageError for none."""
    return _read(path, lambda file: read_header(file).other_view)


def _read(path: Path, read: Callable[[BinaryIO], _Read]) -> _Read:
    try:
        with open_regular(path, MAX_IMAGE_BYTES) as file:
            return read(file)
    except OSError as error:
        raise BrokenImageError(error.strerror or str(error)) from error


def check_size(size: tuple[int, int], max_pixels: int) -> None:
    """Raise BrokenImageError for an image of too few or too many pixels."""
    height, width = size
    if min(size) < MIN_SIDE:
        raise BrokenImageError(f"{width}x{height} px; at least {MIN_SIDE} px per side are needed")
    if max(size) > MAX_SIDE or height * width > MOST_PIXELS:
        raise BrokenImageError(
            f"{width}x{height} px; at most {MAX_SIDE:,} per side and {MOST_PIXELS:,} are decoded"
        )
    if height * width > max_pixels:
        raise BrokenImageError(
            f"{width}x{height} px are {height * width:,}, over the limit of {max_pixels:,}; "
            "make it smaller, or raise --max-pixels"
        )


def check_complete(file: BinaryIO, header: ImageHeader) -> None:
    """Raise BrokenImageError for a file that is cut off, and for a PNG with a damaged chunk."""
    try:
        require_complete(file, header.kind, *header.pixels)
    except (BrokenPngError, IncompleteError) as error:
        raise BrokenImageError(str(error)) from error


def read_header(file: BinaryIO) -> ImageHeader:
    """Return the header of an image of a kind that is decoded.

    Raises:
        BrokenImageError: no image, of another kind, or with a broken header; or the package that
            decodes its kind is absent.
        OSError: the file cannot be read.
    """
    kind = _recognise(file)
    bounded = BoundedReads(file)
    try:
        image = open_image(kind, bounded)  # type: ignore[arg-type]  # it reads and seeks
        if kind == "TIFF":
            check_tags(file)
            pixels = read_pixels(image.tag_v2)  # type: ignore[attr-defined]
        else:
            size = image.height, image.width
            told = None if kind == HEIC else _exif_orientation(image)  # its decoder turns it
            pixels = TiffPixels(size, told, _bits(file, kind), False, _end_of_bmp(image))
    except BrokenImageError:
        raise
    except (BrokenTiffError, UserError) as error:
        raise BrokenImageError(str(error)) from error
    except Exception as error:  # Pillow promises no list of what a broken header raises
        raise BrokenImageError(f"broken {kind} header: {str(error):.200}") from error
    repeats = isinstance(image, JpegImageFile) and (
        # Pillow stops behind the head of the first scan: how many components it holds, which ones.
        image.info.get("progressive", 0) == 1 or bounded.last[:1] != bytes([image.layers])
    )
    asked = known_orientation(pixels.orientation)
    orientation = UPRIGHT if kind in _NEVER_TURNED else asked
    return ImageHeader(
        kind,
        pixels.size[::-1] if orientation in EXCHANGES_SIDES else pixels.size,
        orientation,
        asked if orientation == asked else undone_by(asked),
        has_alpha(image),
        pixels.bits,
        pixels.white_is_zero,
        (image.tile[0].offset if image.tile else 0, pixels.end),
        repeats,
    )


def _recognise(file: BinaryIO) -> str:
    """Return the kind of image; raise BrokenImageError, with its kind, for one of another."""
    file.seek(0)
    start = file.read(START_BYTES)
    file.seek(0)
    if kind := recognise(start):
        return kind
    if other := recognise_other(start):
        raise BrokenImageError(f"{other} is not decoded; accepted: {', '.join(KINDS)}")
    raise BrokenImageError("not an image")


def _bits(file: BinaryIO, kind: str) -> int:
    """Return the number of bits per channel: 16 in some PNGs, else 8 or fewer."""
    if kind != "PNG":
        return 8
    file.seek(_PNG_BITS_AT)
    return ord(file.read(1))


def _end_of_bmp(image: ImageFile) -> int:
    """Return where the pixels of a BMP end; 0 for compressed ones, and for other kinds."""
    if not isinstance(image, BmpImageFile) or image.tile[0].codec_name != "raw":
        return 0
    _, row, _ = cast(tuple[str, int, int], image.tile[0].args)
    return image.tile[0].offset + row * image.height


def _exif_orientation(image: ImageFile) -> object:
    """Return EXIF's orientation; `image.getexif()` would read XMP too, which OpenCV does not."""
    exif = image.info.get("exif", b"").removeprefix(b"Exif\0\0")
    if not exif:
        return None
    directory = ImageFileDirectory_v2(exif[:8])
    file = BoundedReads(io.BytesIO(exif))
    file.seek(directory.next)
    directory.load(file)  # type: ignore[arg-type]  # it reads and seeks
    return directory.get(_EXIF_ORIENTATION)


class BoundedReads:
    """A file for Pillow, which ends the reading of a header that is longer than any image's.

    Pillow reads rubbish in a JPEG byte by byte, and may read the whole file again for each of a
    TIFF's 65,535 tags.
    """

    def __init__(self, file: BinaryIO):
        self.seek, self.tell = file.seek, file.tell
        self._file = file
        self._reads, self._bytes = _MAX_READS, _MAX_HEADER_BYTES
        self.last = b""  # what was read

    def read(self, size: int = -1) -> bytes:
        content = self.last = self._file.read(size)
        self._reads -= 1
        if size >= 0:  # without a size, Pillow reads a whole WebP, once
            self._bytes -= len(content)
        if self._reads < 0 or self._bytes < 0:
            raise BrokenImageError("its header is longer than that of any image")
        return content

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)
