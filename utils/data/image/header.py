"""The header of an image file: kind, size, orientation; and whether the file is whole.

Pillow reads the header of every kind.
"""

import io
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from PIL import Image
from PIL.AvifImagePlugin import AvifImageFile
from PIL.BmpImagePlugin import BmpImageFile
from PIL.GifImagePlugin import GifImageFile
from PIL.ImageFile import ImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.TiffImagePlugin import ImageFileDirectory_v2, TiffImageFile
from PIL.WebPImagePlugin import WebPImageFile

from duet.utils.errors import BrokenSourceError, UserError
from duet.utils.files.regular import open_regular
from duet.utils.image_limits import MAX_IMAGE_BYTES, MAX_PIXELS, MAX_SIDE, MIN_SIDE, MOST_PIXELS
from duet.utils.optional import import_optional


class _JpegHeader(JpegImageFile):
    """A JPEG whose EXIF is not read for its resolution, which Pillow would do without a bound."""

    def _read_dpi_from_exif(self) -> None:
        pass


HEIC = "HEIC"
# Plugin classes by name: Image.open would try every kind that Pillow knows.
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
_START_BYTES = 256  # enough to recognise a file
_BRANDS = {b"avif": "AVIF", b"avis": "AVIF"} | dict.fromkeys(
    (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"), HEIC
)
UPRIGHT = 1
# What makes an image of an EXIF orientation upright: first exchange rows and columns, then mirror.
# 6 is a quarter clockwise, 8 counter-clockwise. Source: CIPA DC-008, "Orientation".
EXCHANGES_SIDES = (5, 6, 7, 8)
_ORIENTATION = 0x0112  # the tag, of EXIF and of a TIFF
# Decoders turn TIFF and HEIC. Chromium 149 shows a WebP as stored, and turns JPEG, PNG and AVIF.
_NOT_TURNED_BY_US = ("WEBP", "TIFF", HEIC)
_NOT_EIGHT_BITS = ("F", "I")
_MAX_READS = 1 << 12
_MAX_HEADER_BYTES = 1 << 23
_RLE_PIXELS = 128  # maximum per file byte of a run-length encoded bitmap
_SCAN_START, JPEG_END = b"\xff\xda", b"\xff\xd9"
_ENDINGS = bytes(range(1, 200)), bytes(range(199, 0, -1))  # as if pixels followed


class BrokenImageError(BrokenSourceError):
    """Why an image file cannot be used."""


class ImageHeader(NamedTuple):
    kind: str  # Pillow's name, such as "JPEG"
    size: tuple[int, int]  # (height, width) in pixels, upright
    orientation: int  # EXIF orientation that the decoded image still has
    may_repeat_scans: bool  # a JPEG that codes its pixels in any number of passes


class CheckedFile(NamedTuple):
    size: tuple[int, int]  # (height, width) in pixels as it is decoded
    lacks_end: bool = False  # a JPEG that lacks only its end mark, which its decoding adds


def check_file(path: Path, max_pixels: int = MAX_PIXELS) -> CheckedFile:
    """Return the size of an image file; JPEG, PNG and WebP are not decoded.

    BrokenImageError: no image, truncated, smaller than 10 px, or larger than max_pixels.
    """
    try:
        with open_regular(path, MAX_IMAGE_BYTES) as file:
            header = read_header(file)
            check_size(header.size, max_pixels)
            return CheckedFile(header.size, check_complete(file, header.kind))
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


def check_complete(file: BinaryIO, kind: str) -> bool:
    """Return whether it is a JPEG that lacks only its end mark.

    Rare kinds are decoded. BrokenImageError: it is cut off, or a PNG with a damaged chunk.
    """
    if kind == "JPEG":
        return _check_jpeg(file)
    if kind != "WEBP":
        file.seek(0)
        try:
            image = open_image(kind, file)
            if kind == "PNG":
                image.verify()
            else:
                image.load()
        except Exception as error:  # Pillow promises no list of what a damaged image raises
            raise BrokenImageError(f"truncated or damaged {kind} file: {error!s:.200}") from error
    return False


def _check_jpeg(file: BinaryIO) -> bool:
    file.seek(-len(JPEG_END), io.SEEK_END)
    if file.read() == JPEG_END:
        return False
    file.seek(0)
    content = file.read()
    if has_end(content):
        return False
    if not _has_all_pixels(content):
        raise BrokenImageError("truncated: the JPEG file does not reach its end mark")
    return True


def has_end(content: bytes) -> bool:
    """Return whether a JPEG reaches its end mark, perhaps followed by camera data.

    A preview in the header ends before the last scan starts.
    """
    return content.endswith(JPEG_END) or content.rfind(JPEG_END) > content.rfind(_SCAN_START)


def with_end(content: bytes) -> bytes:
    return content if has_end(content) else content.removesuffix(b"\xff") + JPEG_END


def _has_all_pixels(content: bytes) -> bool:
    """Return whether no pixel of a JPEG without an end mark depends on what follows.

    Unknown, thus False, for one in several scans.
    """
    content = content.removesuffix(b"\xff")  # half of the mark
    try:
        image = open_image("JPEG", io.BytesIO(content))
        num_in_scan = content[content.rfind(_SCAN_START) + 4]
        if "progressive" in image.info or num_in_scan != len(image.getbands()):
            return False
        looks = [
            open_image("JPEG", io.BytesIO(with_end(content + ending))).tobytes()
            for ending in (b"", *_ENDINGS)
        ]
    except Exception:  # Pillow promises no list of what a damaged image raises
        return False
    return all(look == looks[0] for look in looks)


def read_header(file: BinaryIO) -> ImageHeader:
    """Return the header of an image of a kind that is decoded.

    Raises:
        BrokenImageError: no such image, a broken header, or its decoder is not installed.
        OSError: the file cannot be read.
    """
    file.seek(0)
    start = file.read(_START_BYTES)
    if not start:
        raise BrokenImageError("the file is empty")
    kind = recognise(start)
    if not kind:
        raise BrokenImageError(f"not an image that is decoded; accepted: {', '.join(KINDS)}")
    file.seek(0)
    try:
        image = open_image(kind, BoundedReads(file))  # type: ignore[arg-type]  # reads and seeks
        asked = known_orientation(_stored_orientation(image))
    except BrokenImageError:
        raise
    except UserError as error:
        raise BrokenImageError(str(error)) from error
    except Exception as error:  # Pillow promises no list of what a broken header raises
        raise BrokenImageError(f"broken {kind} header: {str(error):.200}") from error
    if image.mode in _NOT_EIGHT_BITS:
        raise BrokenImageError(
            f"a {kind} of 32-bit or signed numbers, whose white level is unknown: "
            "convert it to unsigned integers of 8 or 16 bits"
        )
    if any(tile.codec_name == "bmp_rle" for tile in image.tile):  # a jump passes any number
        num_pixels, num_bytes = image.width * image.height, file.seek(0, io.SEEK_END)
        if num_pixels > _RLE_PIXELS * num_bytes:
            raise BrokenImageError(f"{num_bytes:,} bytes do not hold its {num_pixels:,} pixels")
    by_us = UPRIGHT if kind in _NOT_TURNED_BY_US else asked
    sides = image.height, image.width
    size = sides[::-1] if by_us in EXCHANGES_SIDES else sides
    return ImageHeader(kind, size, by_us, "progressive" in image.info)


def recognise(start: bytes) -> str:
    """Return the kind of a file by its first bytes; "" for one that is not decoded here."""
    if start[4:8] == b"ftyp":
        return _by_brand(start)
    padded = start.ljust(16, b"\0")  # Pillow asks for the first bytes of each kind
    for kind in _CLASSES:
        _, accepts = Image.OPEN[kind]
        if accepts is not None and accepts(padded) is True:
            return kind
    return ""


def _by_brand(start: bytes) -> str:
    """Return AVIF or HEIC by the brands that a file lists.

    Source: ISO/IEC 14496-12, "File Type Box".
    """
    end = int.from_bytes(start[:4], "big")
    brands = [start[8:12], *(start[place : place + 4] for place in range(16, end, 4)[:60])]
    known = [_BRANDS[brand] for brand in brands if brand in _BRANDS]
    # Both also have brands that leave the coding of the pixels open.
    return "AVIF" if "AVIF" in known else HEIC if known else ""


def open_image(kind: str, file: BinaryIO) -> ImageFile:
    """Read the header of a file of this kind; any exception for a broken one.

    UserError: the package that reads HEIC is absent.
    """
    if kind == HEIC:
        image: ImageFile = import_optional("pi_heif", "a HEIC image").HeifImageFile(file)
        return image
    return _CLASSES[kind](file)  # type: ignore[arg-type]  # reads and seeks


def known_orientation(value: object) -> int:
    """Return an EXIF orientation from 1 to 8; upright for anything else that a file may hold."""
    return value if isinstance(value, int) and 1 <= value <= 8 else UPRIGHT


def _stored_orientation(image: ImageFile) -> object:
    """Return EXIF's orientation; `image.getexif()` would read XMP too, which OpenCV does not."""
    if isinstance(image, TiffImageFile):
        return image.tag_v2.get(_ORIENTATION)
    exif = image.info.get("exif", b"").removeprefix(b"Exif\0\0")
    if not exif:
        return None
    directory = ImageFileDirectory_v2(exif[:8])
    file = BoundedReads(io.BytesIO(exif))
    file.seek(directory.next)
    directory.load(file)  # type: ignore[arg-type]  # reads and seeks
    return directory.get(_ORIENTATION)


class BoundedReads:
    """A file for Pillow that ends the reading of an endless header.

    Pillow reads rubbish in a JPEG byte by byte, and may read the whole file again for each of a
    TIFF's 65,535 tags.
    """

    def __init__(self, file: BinaryIO):
        self._file = file
        self._reads, self._bytes = _MAX_READS, _MAX_HEADER_BYTES

    def read(self, size: int = -1) -> bytes:
        content = self._file.read(size)
        self._reads -= 1
        if size >= 0:  # without a size, Pillow reads a whole WebP, once
            self._bytes -= len(content)
        if self._reads < 0 or self._bytes < 0:
            raise BrokenImageError("its header is longer than that of any image")
        return content

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)
