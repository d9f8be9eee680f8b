"""The tags of a TIFF: those that decoders read differently, and what is not decoded.

Before: the bytes of a file. After: `header.py` and `decoding.py`.
Source: TIFF revision 6.0, "Image File Directory"; BigTIFF: the same with 64-bit numbers.
"""

from __future__ import annotations

import io
import struct
import sys
from collections.abc import Mapping
from typing import Any, BinaryIO, NamedTuple

import numpy as np

_WIDTH, _HEIGHT, _BITS, _COMPRESSION, _PHOTOMETRIC = 256, 257, 258, 259, 262
_STRIP_STARTS, _ORIENTATION, _CHANNELS, _STRIP_BYTES = 273, 274, 277, 279
_TILE_STARTS, _TILE_BYTES, _SAMPLE_FORMAT = 324, 325, 339
_NOT_COMPRESSED = 1
_SHORT, _UPRIGHT = 3, 1
_WHITE_IS_ZERO = 0
_UNSIGNED, _UNDEFINED = 1, 4
_MAX_BITS = 16
# What OpenCV's libtiff has no decoder for. Measured with OpenCV 4.11, and by its build.
_NOT_DECODED = {34887: "LERC", 34925: "LZMA", 50000: "Zstandard", 50001: "WebP", 50002: "JPEG XL"}
_MAX_TAGS = 1 << 12


class BrokenTiffError(Exception):
    """Why a TIFF is not decoded."""


class TiffPixels(NamedTuple):
    """What the tags say of the pixels."""

    size: tuple[int, int]  # (height, width) as stored
    orientation: object  # EXIF's, or what stands in its place
    bits: int  # of a channel
    white_is_zero: bool
    end: int  # of their bytes in the file


class _Form(NamedTuple):
    """How the numbers of a directory are written."""

    order: str
    number: str  # of tags
    tag: str  # number, type, count and value
    first: int  # where the place of the directory stands

    def size(self, code: str) -> int:
        return struct.calcsize(self.order + code)


def read_pixels(tags: Mapping[int, Any]) -> TiffPixels:
    """Return what the tags, as Pillow has read them, say of the pixels.

    Raises:
        BrokenTiffError: numbers or a compression that are not decoded.
    """
    bits = max(_as_tuple(tags.get(_BITS, 1)))
    formats = set(_as_tuple(tags.get(_SAMPLE_FORMAT, _UNSIGNED)))
    if bits > _MAX_BITS or not formats <= {_UNSIGNED, _UNDEFINED}:
        raise BrokenTiffError(
            f"a TIFF of {bits}-bit numbers, signed or floating-point ones perhaps; it does not say "
            "which value is white: convert it to unsigned integers of 8 or 16 bits"
        )
    if name := _NOT_DECODED.get(tags.get(_COMPRESSION, 1)):
        raise BrokenTiffError(f"a TIFF with {name} compression; store it with LZW or Deflate")
    return TiffPixels(
        (int(tags[_HEIGHT]), int(tags[_WIDTH])),
        tags.get(_ORIENTATION),
        bits,
        tags.get(_PHOTOMETRIC) == _WHITE_IS_ZERO,
        _end(tags, bits),
    )


def _end(tags: Mapping[int, Any], bits: int) -> int:
    """Return where the bytes of the pixels end, 0 where the tags do not say it."""
    starts, counts = (
        _as_tuple(tags.get(of_strips, tags.get(of_tiles, ())))
        for of_strips, of_tiles in ((_STRIP_STARTS, _TILE_STARTS), (_STRIP_BYTES, _TILE_BYTES))
    )
    most = sys.maxsize
    if tags.get(_COMPRESSION, 1) == _NOT_COMPRESSED and starts and _STRIP_STARTS in tags:
        # Some programs write larger numbers of bytes, which libtiff does not believe either.
        row = -(-tags[_WIDTH] * tags.get(_CHANNELS, 1) * bits // 8)
        most = row * tags[_HEIGHT]
    ends = [start + min(count, most) for start, count in zip(starts, counts, strict=False)]
    return max(ends, default=0)


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def check_tags(file: BinaryIO) -> None:
    """Raise BrokenTiffError for a TIFF that states its size twice.

    Of two sizes Pillow takes the last one, libtiff the first.
    """
    numbers = [number for number, _ in _read_tags(file)[1]]
    if any(numbers.count(size) != 1 for size in (_WIDTH, _HEIGHT)):
        raise BrokenTiffError("a TIFF that states its size more than once")


def as_stored(content: np.ndarray) -> np.ndarray:
    """Return a TIFF's bytes, (N,) uint8, without orientation: all decoders leave it as stored.

    OpenCV 4.11 turns some TIFFs, and fails on others.
    """
    form, tags = _read_tags(io.BytesIO(content.data))
    places = [place for number, place in tags if number == _ORIENTATION]
    if not places:
        return content
    content = content.copy()
    for place in places:
        upright = struct.pack(form.order + form.tag, _ORIENTATION, _SHORT, 1, _UPRIGHT)
        content[place : place + len(upright)] = np.frombuffer(upright, np.uint8)
    return content


def _read_tags(file: BinaryIO) -> tuple[_Form, list[tuple[int, int]]]:
    """Return the number and the place of each tag of the first image."""
    file.seek(0)
    start = file.read(16)
    order = "<" if start.startswith(b"II") else ">"
    if 43 in start[2:4]:
        form, offset = _Form(order, "Q", "HHQH6x", 8), "Q"
    else:
        form, offset = _Form(order, "H", "HHIH2x", 4), "I"
    (directory,) = struct.unpack_from(order + offset, start, form.first)
    file.seek(directory)
    (num_tags,) = struct.unpack(order + form.number, file.read(form.size(form.number)))
    length = form.size(form.tag)
    content = file.read(min(num_tags, _MAX_TAGS) * length)
    first = directory + form.size(form.number)
    return form, [
        (struct.unpack_from(order + "H", content, place)[0], first + place)
        for place in range(0, len(content) - length + 1, length)
    ]
