"""The chunks of a PNG: whether all are whole, and an animated image as a still one.

Before: the bytes of a file. After: `header.py` and `decoding.py`.
Source: https://www.w3.org/TR/png-3/, "Datastream structure" and "APNG".
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterator
from itertools import takewhile
from typing import BinaryIO, NamedTuple

import numpy as np

SIGNATURE = b"\x89PNG\r\n\x1a\n"
MAX_CHUNKS = 1 << 20  # libpng writes one for each 8 KiB of compressed pixels
_DATA, _END = b"IDAT", b"IEND"
_ANIMATION = (b"acTL", b"fcTL", b"fdAT")
_LEFT_OUT = (*_ANIMATION, b"iCCP")
_FRAME = struct.Struct(">I4s")  # length of the content and kind; a checksum follows the content
_CHECKSUM = struct.Struct(">I")
_BLOCK_BYTES = 1 << 20


class BrokenPngError(Exception):
    """Why a PNG is damaged."""


class _Chunk(NamedTuple):
    kind: bytes
    start: int  # bytes from the start of the file
    end: int


def check_png(file: BinaryIO) -> None:
    """Compare the checksum of every chunk, in 1 MiB of memory.

    Raises:
        BrokenPngError: a chunk is damaged, or the last one is not there.
    """
    for chunk in _chunks(file):
        file.seek(chunk.start + _FRAME.size - len(chunk.kind))
        left = chunk.end - chunk.start - _FRAME.size + len(chunk.kind) - _CHECKSUM.size
        checksum = 0
        while left:
            block = file.read(min(left, _BLOCK_BYTES))
            if not block:
                raise BrokenPngError("became shorter while it was read")
            checksum, left = zlib.crc32(block, checksum), left - len(block)
        if file.read(_CHECKSUM.size) != _CHECKSUM.pack(checksum):
            raise BrokenPngError(f"the checksum of its chunk {chunk.kind!r} is wrong")


def without_extras(content: np.ndarray) -> np.ndarray:
    """Return a PNG's bytes, (N,) uint8, without animation and colour profile.

    All decoders take the rest alike.

    The image that stays is the one that programs without animations show, in most files the first
    frame. OpenCV 4.11 ends the process when the first frame of an animation is damaged. It converts
    no colours by a profile, but its libpng prints warnings of those that common programs write.

    Raises:
        BrokenPngError: a chunk extends beyond the end of the file.
    """
    file = io.BytesIO(content.data)
    header = takewhile(lambda chunk: chunk.kind != _DATA, _chunks(file))
    if not any(chunk.kind in _LEFT_OUT for chunk in header):
        return content
    kept = [chunk for chunk in _chunks(file) if chunk.kind not in _LEFT_OUT]
    parts = [content[chunk.start : chunk.end] for chunk in kept]
    return np.concatenate([content[: len(SIGNATURE)], *parts])


def _chunks(file: BinaryIO) -> Iterator[_Chunk]:
    """Yield the chunks up to the end mark; each one lies within the file."""
    size = file.seek(0, io.SEEK_END)
    start = len(SIGNATURE)
    for _ in range(MAX_CHUNKS):
        file.seek(start)
        frame = file.read(_FRAME.size)
        if len(frame) < _FRAME.size:
            break
        length, kind = _FRAME.unpack(frame)
        end = start + _FRAME.size + length + _CHECKSUM.size
        if end > size:
            break
        yield _Chunk(kind, start, end)
        if kind == _END:
            return
        start = end
    else:
        raise BrokenPngError(f"has over {MAX_CHUNKS:,} chunks")
    raise BrokenPngError("truncated: the PNG file does not reach its end mark")
