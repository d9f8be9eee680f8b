"""Frames between the front process and a worker: a JSON header and a body of bytes.

Before: `messages.py`. After: `worker_process.py` and `models/serving` send and read them. A frame
is the length of its header and that of its body, four bytes each, then the header and the body.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Mapping
from typing import Any, BinaryIO, NamedTuple

from utils.files.json import parse_json

LENGTHS = struct.Struct(">II")
LONGEST_HEADER = 1 << 24  # the names of all classes are in one
LONGEST_BODY = 1 << 31


class Frame(NamedTuple):
    """What is sent at once."""

    header: dict[str, Any]
    body: bytes = b""


class BrokenFrameError(Exception):
    """What is no frame; nothing that follows can be read."""


def start_of(header: Mapping[str, Any], body_length: int) -> bytes:
    """Return all of a frame but its body."""
    text = json.dumps(header).encode()
    if len(text) > LONGEST_HEADER or body_length > LONGEST_BODY:
        raise BrokenFrameError(f"a header of {len(text)} bytes, a body of {body_length}")
    return LENGTHS.pack(len(text), body_length) + text


def read_frame(file: BinaryIO) -> Frame | None:
    """Wait for a frame and return it; None if the other end has closed.

    Raises:
        BrokenFrameError: no frame, or the end in the middle of one.
    """
    start = file.read(LENGTHS.size)
    if not start:
        return None
    lengths = _lengths(start)
    parts = [file.read(length) for length in lengths]
    if any(len(part) < length for part, length in zip(parts, lengths, strict=True)):
        raise BrokenFrameError("it ends in the middle")
    return _frame(*parts)


async def receive_frame(stream: asyncio.StreamReader) -> Frame | None:
    """Wait for a frame as `read_frame` does, without holding up the event loop."""
    start = b""
    try:
        start = await stream.readexactly(LENGTHS.size)
        header, body = [await stream.readexactly(length) for length in _lengths(start)]
    except asyncio.IncompleteReadError as error:
        if start or error.partial:
            raise BrokenFrameError("it ends in the middle") from error
        return None
    return _frame(header, body)


def _lengths(start: bytes) -> tuple[int, int]:
    """Return the lengths of header and body; BrokenFrameError beyond their limits."""
    if len(start) < LENGTHS.size:
        raise BrokenFrameError("it ends in the middle")
    header, body = LENGTHS.unpack(start)
    if header > LONGEST_HEADER or body > LONGEST_BODY:
        raise BrokenFrameError(f"a header of {header} bytes, a body of {body}")
    return header, body


def _frame(header: bytes, body: bytes) -> Frame:
    try:
        value = parse_json(header)
    except ValueError as error:
        raise BrokenFrameError(f"its header is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise BrokenFrameError("its header is no JSON object")
    return Frame(value, body)
