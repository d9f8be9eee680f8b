"""Whether a video file is as long as its own container says, and how much of it can be followed.

Before: an open file. After: `video_file.py`. FFmpeg ends a file that was cut at a boundary of its
packets like a whole one: of Matroska cut at nine places it told none, of AVI one. These containers
begin with their length; other kinds (MPEG, FLV) tell no length.
Sources: ISO/IEC 14496-12, "Object structure"; RFC 8794 and 9559; Microsoft's RIFF.
"""

from __future__ import annotations

import io
import struct
from typing import BinaryIO, NamedTuple

_MAX_BOXES = 1 << 18  # two for each fragment of a second: a day and a half
_INDEXES = (b"moov", b"moof")
_EBML, _SEGMENT = b"\x1aE\xdf\xa3", b"\x18S\x80g"


class ContainerLength(NamedTuple):
    """How long a file is, and what of it can be read."""

    is_cut: bool  # the container is longer than the file
    readable_bytes: int  # up to an index that is cut off, which FFmpeg would stumble over


def measure_container(file: BinaryIO) -> ContainerLength:
    """Return a file's length and the length in its container; then rewind the file."""
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    start = file.read(12)
    if start[:4] == b"RIFF":
        end = 8 + int.from_bytes(start[4:8], "little")
        found = ContainerLength(end > size, size)
    elif start[:4] == _EBML:
        found = ContainerLength(_matroska_end(file) > size, size)
    elif start[4:8] in (b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip"):
        found = _measure_boxes(file, size)
    else:
        found = ContainerLength(False, size)
    file.seek(0)
    return found


def _measure_boxes(file: BinaryIO, size: int) -> ContainerLength:
    """Follow an MP4's boxes: each begins with its length and its kind."""
    at = 0
    for _ in range(_MAX_BOXES):
        file.seek(at)
        head = file.read(16)
        if len(head) < 8:
            return ContainerLength(bool(head), at)
        length, kind = struct.unpack_from(">I4s", head)
        if length == 1 and len(head) == 16:  # the length follows, in eight bytes
            length = int.from_bytes(head[8:], "big")
        if length == 0:  # up to the end, however long
            break
        if length < 8 or at + length > size:
            is_cut = length >= 8
            return ContainerLength(is_cut, at if is_cut and at and kind in _INDEXES else size)
        at += length
    return ContainerLength(False, size)


def _matroska_end(file: BinaryIO) -> int:
    """Return where the segment, which holds all frames, ends; 0 if it does not say."""
    file.seek(len(_EBML))
    header_bytes = _ebml_number(file)
    if header_bytes is None:
        return 0
    file.seek(header_bytes, io.SEEK_CUR)
    if file.read(len(_SEGMENT)) != _SEGMENT:
        return 0
    length = _ebml_number(file)
    return 0 if length is None else file.tell() + length


def _ebml_number(file: BinaryIO) -> int | None:
    """Read a length of one to eight bytes; None for one that is not known, or not there.

    The zeros before the first bit that is set say how many bytes follow; all ones are "unknown".
    """
    first = file.read(1)
    if not first or first == b"\0":
        return None
    num_more = 8 - first[0].bit_length()
    bits = 7 * (num_more + 1)
    value = int.from_bytes(first + file.read(num_more), "big") & ((1 << bits) - 1)
    return None if value == (1 << bits) - 1 else value
