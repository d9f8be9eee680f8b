"""The header of an image file: size and orientation; and whether the file is complete.

Before: the file. After: `utils/data/sources/labels.py`, which scans, and `decoding.py` beside this.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError
from PIL.JpegImagePlugin import JpegImageFile
from PIL.TiffImagePlugin import TiffImageFile

MIN_SIDE = 10
_END_MARKS = {"JPEG": b"\xff\xd9", "PNG": b"IEND\xaeB`\x82"}
_JPEG_SCAN_START = b"\xff\xda"
_EXIF_ORIENTATION = 0x0112
_UPRIGHT = 1
_QUARTER_TURNS = (5, 6, 7, 8)  # EXIF orientations that exchange height and width
# Measured with OpenCV 4.11: it turns these, ignores the orientation of WebP, and fails on TIFF's.
_TURNED_KINDS = ("JPEG", "MPO", "PNG")
_DECODED_KINDS = ("BMP", "JPEG", "MPO", "PNG", "TIFF", "WEBP")


class BrokenImageError(Exception):
    """Why an image file cannot be used."""


def read_image_size(path: Path) -> tuple[int, int]:
    """Return (height, width) in pixels as `cv2.imread` would, without decoding the image.

    Raises:
        BrokenImageError: no image, truncated, or smaller than 10 px.
    """
    try:
        with _open(path) as image:
            width, height = image.size
            kind = image.format or ""
            turned = _orientation(image) in _QUARTER_TURNS
            if kind == "PNG":
                image.verify()  # the checksum of every chunk; cheap beside decoding
        complete = _is_complete(path, kind)
    except UnidentifiedImageError as error:
        raise BrokenImageError("not an image") from error
    # What Pillow raises for broken headers, and for very large images of other kinds.
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise BrokenImageError(str(error)) from error
    if kind not in _DECODED_KINDS:
        raise BrokenImageError(f"{kind} is not decoded; accepted: {', '.join(_DECODED_KINDS)}")
    if turned and kind == "TIFF":
        raise BrokenImageError("a TIFF with a rotation tag; store it upright")
    if not complete:
        raise BrokenImageError(f"truncated: the {kind} file does not reach its end mark")
    if min(width, height) < MIN_SIDE:
        raise BrokenImageError(f"{width}x{height} px, at least {MIN_SIDE} px a side are needed")
    return (width, height) if turned and kind in _TURNED_KINDS else (height, width)


def is_upright_jpeg(content: np.ndarray) -> bool:
    """Return whether (N,) uint8 bytes are a JPEG that a decoder neither turns nor mirrors."""
    try:
        return _orientation(JpegImageFile(io.BytesIO(content.data))) in (None, _UPRIGHT)
    except (OSError, ValueError, SyntaxError):  # no JPEG, or broken
        return False


def _orientation(image: Image.Image) -> int | None:
    """Return EXIF's orientation; `image.getexif()` would read XMP too, which OpenCV does not."""
    if isinstance(image, TiffImageFile):
        return image.tag_v2.get(_EXIF_ORIENTATION)
    exif = Image.Exif()
    exif.load(image.info.get("exif", b""))
    return exif.get(_EXIF_ORIENTATION)


def _open(path: Path) -> Image.Image:
    """Open an image without the limit on pixels of `Image.open`, which is meant for decoding."""
    with path.open("rb") as file:
        start = file.read(16)
    Image.init()
    for kind in set(_DECODED_KINDS) - {"MPO"}:  # the reader of JPEGs recognises an MPO itself
        make, accepts = Image.OPEN[kind]
        if accepts is not None and accepts(start):
            try:
                return make(path, "")  # type: ignore[arg-type]  # a path is accepted too
            except SyntaxError:  # perhaps of another kind
                break
    return Image.open(path)


def _is_complete(path: Path, kind: str) -> bool:
    mark = _END_MARKS.get(kind)
    if mark is None:
        return True
    with path.open("rb") as file:
        file.seek(0, 2)
        file.seek(max(0, file.tell() - len(mark)))
        if file.read() == mark:
            return True
    # Some cameras append data. A preview in the header ends before the last scan starts.
    content = path.read_bytes()
    return content.rfind(mark) > (content.rfind(_JPEG_SCAN_START) if kind == "JPEG" else -1)
