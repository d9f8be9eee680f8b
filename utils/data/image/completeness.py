"""Whether an image file is cut off, without decoding it.

Before: the file, and what `header.py` found. After: `header.py`.
"""

from __future__ import annotations

import io
from typing import BinaryIO

from utils.data.image.kinds import HEIC
from utils.data.image.png import check_png

_JPEG_SCAN_START, _JPEG_END = b"\xff\xda", b"\xff\xd9"
_BOXES = (b"ftyp", b"meta", b"moov", b"mdat", b"free")  # what AVIF and HEIC consist of
_BLOCK_BYTES = 1 << 20


class IncompleteError(Exception):
    """Why a file is incomplete."""


def require_complete(file: BinaryIO, kind: str, start: int, end: int) -> None:
    """Look for the end of an image; WebP is not whole if its header can be read.

    Args:
        start: of the bytes of its pixels, as the header tells.
        end: of these bytes; 0 where the header does not tell.

    Raises:
        IncompleteError: it is not there.
        BrokenPngError: likewise, or a chunk of a PNG is damaged.
    """
    if kind == "PNG":
        check_png(file)
    elif kind == "JPEG":
        _check_jpeg(file)
    elif kind == "GIF":
        _check_gif(file, start)
    elif kind in ("AVIF", HEIC):
        _check_boxes(file, kind)
    elif end > (size := file.seek(0, io.SEEK_END)):
        raise IncompleteError(f"truncated: the {kind} file has {size:,} of {end:,} bytes")


def _check_jpeg(file: BinaryIO) -> None:
    file.seek(-len(_JPEG_END), io.SEEK_END)
    # Some cameras append data. A preview in the header ends before the last scan starts.
    if file.read() != _JPEG_END and (
        _find_last(file, _JPEG_END) <= _find_last(file, _JPEG_SCAN_START)
    ):
        raise IncompleteError("truncated: the JPEG file does not reach its end mark")


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


def _check_gif(file: BinaryIO, start: int) -> None:
    """Go through the blocks of the first frame: each has its length before it, the last one 0."""
    file.seek(start)
    while length := file.read(1):
        if length == b"\0":
            return
        file.seek(length[0], io.SEEK_CUR)
    raise IncompleteError("truncated: the GIF file does not reach the end of its first frame")


def _check_boxes(file: BinaryIO, kind: str) -> None:
    """Go through the boxes of a file, each with its size before it, to the first unknown one.

    Source: ISO/IEC 14496-12, "Object Structure".
    """
    size, start = file.seek(0, io.SEEK_END), 0
    while start < size:
        file.seek(start)
        head = file.read(16)
        length, name = int.from_bytes(head[:4], "big"), head[4:8]
        if name not in _BOXES or length == 0:  # 0: to the end of the file
            return
        start += max(8, int.from_bytes(head[8:], "big") if length == 1 else length)
    if start > size:
        raise IncompleteError(f"truncated: the {kind} file has {size:,} of {start:,} bytes")
