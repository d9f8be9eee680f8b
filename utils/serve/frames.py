"""Messages between the server and the process that predicts: a JSON header and a body of bytes.

The length of the header and that of the body, four bytes each, precede them.
"""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Mapping
from typing import Any, BinaryIO

from duet.utils.json_files import parse_json

LENGTHS = struct.Struct(">II")


Frame = tuple[dict[str, Any], bytes]


def pack_frame(header: Mapping[str, Any], body: bytes = b"") -> bytes:
    """Return a message as bytes."""
    text = json.dumps(header).encode()
    return LENGTHS.pack(len(text), len(body)) + text + body


def read_frame(file: BinaryIO) -> Frame | None:
    """Wait for a message; return None once the other side is gone."""
    start = file.read(LENGTHS.size)
    if len(start) < LENGTHS.size:
        return None
    lengths = LENGTHS.unpack(start)
    header, body = map(file.read, lengths)
    return (parse_json(header), body) if len(body) == lengths[1] else None


async def receive_frame(stream: asyncio.StreamReader) -> Frame:
    """Wait for a message without blocking; raise IncompleteReadError if the other side is gone."""
    header, body = LENGTHS.unpack(await stream.readexactly(LENGTHS.size))
    return parse_json(await stream.readexactly(header)), await stream.readexactly(body)
