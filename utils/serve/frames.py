"""Messages between the server and the model process: a JSON header and a binary body.

Each message starts with the lengths of header and body, four bytes each.
"""

import asyncio
import json
import struct
from typing import Any, BinaryIO

from duet.utils.files.json_files import parse_json

LENGTHS = struct.Struct(">II")
Header = dict[str, Any]  # JSON values
Frame = tuple[Header, bytes]


def pack_frame(header: Header, body: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return LENGTHS.pack(len(text), len(body)) + text + body


def read_frame(file: BinaryIO) -> Frame | None:
    """Read a message, blocking; return None when the other side has closed."""
    start = file.read(LENGTHS.size)
    if len(start) < LENGTHS.size:
        return None
    lengths = LENGTHS.unpack(start)
    header, body = map(file.read, lengths)
    return (parse_json(header), body) if len(body) == lengths[1] else None


async def receive_frame(stream: asyncio.StreamReader) -> Frame:
    """Read a message; raise IncompleteReadError if the other side has closed."""
    header, body = LENGTHS.unpack(await stream.readexactly(LENGTHS.size))
    return parse_json(await stream.readexactly(header)), await stream.readexactly(body)
