"""The header of an image file: kind, size and orientation; and whether the file is complete.

Before: the file. After: `utils/data/sources/labels.py`, which scans, and `decoding.py` beside this.
"""

from __future__ import annotations

import io
import struct
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from PIL import Image
from PIL.BmpImagePlugin import BmpImageFile
from PIL.ImageFile import ImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.TiffImagePlugin import ImageFileDirectory_v2, TiffImageFile
from PIL.WebPImagePlugin import WebPImageFile

from utils.data.image.limits import MAX_IMAGE_BYTES, MAX_PIXELS, MAX_SIDE, MIN_SIDE, MOST_PIXELS
from utils.data.image.png import BrokenPngError, check_png
from utils.files.regular import open_regular


class _JpegHeader(JpegImageFile):
    """A JPEG whose EXIF is not read for its resolution, which Pillow would do without a bound."""

    def _read_dpi_from_exif(self) -> None:
        pass


# Pillow's class of each kind that OpenCV decodes too; OpenCV would decode others unasked.
_READERS: dict[str, type[ImageFile]] = {
    "BMP": BmpImageFile,
    "JPEG": _JpegHeader,
    "PNG": PngImageFile,
    "TIFF": TiffImageFile,
    "WEBP": WebPImageFile,
}
_JPEG_SCAN_START, _JPEG_END = b"\xff\xda", b"\xff\xd9"
_EXIF_ORIENTATION = 0x0112
_UPRIGHT = 1
_QUARTER_TURNS = (5, 6, 7, 8)  # EXIF orientations that exchange height and width
# Measured with OpenCV 4.11: it turns these, ignores the orientation of WebP, and fails on TIFF's.
_TURNED_KINDS = ("JPEG", "PNG")
_TIFF_SIZE_TAGS = (256, 257)
_MAX_READS = 1 << 12
_MAX_HEADER_BYTES = 1 << 23
_BLOCK_BYTES = 1 << 20


class BrokenImageError(Exception):
    """Why an image file cannot be used."""


class ImageHeader(NamedTuple):
    """What an image file says of its pixels before they are decoded."""

    kind: str  # as Pillow calls it: "JPEG"
    size: tuple[int, int]  # (height, width) in pixels, as OpenCV decodes it
    is_upright: bool  # OpenCV neither turns nor mirrors it
    may_repeat_scans: bool  # a JPEG that codes its pixels in any number of passes


def read_image_size(path: Path, max_pixels: int = MAX_PIXELS) -> tuple[int, int]:
    """Return (height, width) in pixels as `cv2.imread` would, without decoding the image.

    Raises:
        BrokenImageError: no image, truncated, smaller than 10 px, or larger than max_pixels.
    """
    try:
        with open_regular(path, MAX_IMAGE_BYTES) as file:
            header = read_header(file)
            check_size(header.size, max_pixels)
            check_complete(file, header.kind)
    except OSError as error:
        raise BrokenImageError(error.strerror or str(error)) from error
    return header.size


def check_size(size: tuple[int, int], max_pixels: int) -> None:
    """Raise BrokenImageError for an image of too few or too many pixels."""
    height, width = size
    if min(size) < MIN_SIDE:
        raise BrokenImageError(f"{width}x{height} px, at least {MIN_SIDE} px a side are needed")
    if max(size) > MAX_SIDE or height * width > MOST_PIXELS:
        raise BrokenImageError(
            f"{width}x{height} px; at most {MAX_SIDE:,} a side and {MOST_PIXELS:,} are decoded"
        )
    if height * width > max_pixels:
        raise BrokenImageError(
            f"{width}x{height} px are {height * width:,}, over the limit of {max_pixels:,}; "
            "make it smaller, or raise --max-pixels"
        )


def read_header(file: BinaryIO) -> ImageHeader:
    """Return the header of an image of a kind that is decoded.

    Raises:
        BrokenImageError: no image, of another kind, or with a broken header.
        OSError: the file cannot be read.
    """
    kind = _recognise(file)
    bounded = BoundedReads(file)
    try:
        image = _READERS[kind](bounded)
        orientation = exif_orientation(image)
        if kind == "TIFF":
            _check_tags(file)
    except BrokenImageError:
        raise
    except Exception as error:  # Pillow promises no list of what a broken header raises
        raise BrokenImageError(f"broken {kind} header: {str(error):.200}") from error
    width, height = image.size
    turned = orientation in _QUARTER_TURNS
    if turned and kind == "TIFF":
        raise BrokenImageError("a TIFF with a rotation tag; store it upright")
    size = (width, height) if turned and kind in _TURNED_KINDS else (height, width)
    repeats = isinstance(image, JpegImageFile) and (
        # Pillow stops behind the head of the first scan: how many components it holds, which ones.
        image.info.get("progressive", 0) == 1 or bounded.last[:1] != bytes([image.layers])
    )
    return ImageHeader(kind, size, orientation in (None, _UPRIGHT), repeats)


def _recognise(file: BinaryIO) -> str:
    """Return the kind of image; raise BrokenImageError, with its kind, for one of another."""
    file.seek(0)
    start = file.read(16).ljust(16, b"\0")  # Pillow asks for the first bytes of each kind
    file.seek(0)
    for kind in _READERS:
        if _starts_as(kind, start):
            return kind
    Image.init()  # all kinds that Pillow knows
    others = [kind for kind in Image.ID if _starts_as(kind, start)]
    if not others:
        raise BrokenImageError("not an image")
    raise BrokenImageError(f"{others[0]} is not decoded; accepted: {', '.join(_READERS)}")


def _starts_as(kind: str, start: bytes) -> bool:
    _, accepts = Image.OPEN[kind]
    return accepts is not None and accepts(start) is True


def exif_orientation(image: ImageFile) -> int | None:
    """Return EXIF's orientation; `image.getexif()` would read XMP too, which OpenCV does not."""
    if isinstance(image, TiffImageFile):
        return image.tag_v2.get(_EXIF_ORIENTATION)
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


def _check_tags(file: BinaryIO) -> None:
    """Raise BrokenImageError for a TIFF that tells its size twice.

    Of two sizes Pillow takes the last one, libtiff the first.
    """
    file.seek(0)
    start = file.read(16)
    order, is_big = "<" if start.startswith(b"II") else ">", 43 in start[2:4]
    offset, count, tag = ("Q", "Q", "H18x") if is_big else ("I", "H", "H10x")
    file.seek(struct.unpack_from(order + offset, start, 8 if is_big else 4)[0])
    num_tags = struct.unpack(order + count, file.read(struct.calcsize(order + count)))[0]
    content = file.read(min(num_tags, _MAX_READS) * struct.calcsize(order + tag))
    tags = [number for (number,) in struct.iter_unpack(order + tag, content)]
    if any(tags.count(size) != 1 for size in _TIFF_SIZE_TAGS):
        raise BrokenImageError("a TIFF that tells its size more than once")


def check_complete(file: BinaryIO, kind: str) -> None:
    """Raise BrokenImageError for a PNG with a damaged chunk, and a JPEG that is cut off."""
    if kind == "PNG":
        try:
            check_png(file)
        except BrokenPngError as error:
            raise BrokenImageError(str(error)) from error
    if kind == "JPEG":
        file.seek(-len(_JPEG_END), io.SEEK_END)
        # Some cameras append data. A preview in the header ends before the last scan starts.
        if file.read() != _JPEG_END and (
            _find_last(file, _JPEG_END) <= _find_last(file, _JPEG_SCAN_START)
        ):
            raise BrokenImageError("truncated: the JPEG file does not reach its end mark")


def _find_last(file: BinaryIO, mark: bytes) -> int:
    """Return where the last mark of two bytes in a file starts, -1 for nowhere."""
    end = file.seek(0, io.SEEK_END)
    while end > 1:
        start = max(0, end - _BLOCK_BYTES)
        file.seek(start)
        if (found := file.read(end - start).rfind(mark)) >= 0:
            return start + found
        end = start + 1 if start else 0  # the mark may lie across two blocks
    return -1
