"""Frames between the front process and a worker."""

import asyncio
import io
import json
import struct

import pytest

from utils.serve.frames import (
    LONGEST_BODY,
    LONGEST_HEADER,
    BrokenFrameError,
    read_frame,
    receive_frame,
    start_of,
)

HEADER = {"id": 3, "name": "é三角", "classes": [1, 2]}


def frame_bytes(header=HEADER, body=b"body"):
    text = json.dumps(header).encode()
    return struct.pack(">II", len(text), len(body)) + text + body


def received(content):
    async def run():
        stream = asyncio.StreamReader()
        stream.feed_data(content)
        stream.feed_eof()
        return await receive_frame(stream)

    return asyncio.run(run())


def read(content):
    return read_frame(io.BytesIO(content))


BOTH = pytest.mark.parametrize("reader", [read, received])


@BOTH
@pytest.mark.parametrize("body", [b"", b"\x00\xff" * 70_000])
def test_a_frame_comes_as_it_was_sent(reader, body):
    found = reader(start_of(HEADER, len(body)) + body + b"next")
    assert found == (HEADER, body)


def test_lengths_come_first():
    assert start_of(HEADER, 4) + b"body" == frame_bytes()


@BOTH
def test_the_end_between_frames_is_no_frame(reader):
    assert reader(b"") is None


@BOTH
def test_the_end_within_a_frame_is_an_error_wherever_it_comes(reader):
    whole = frame_bytes({"a": 1})
    for length in range(1, len(whole)):
        with pytest.raises(BrokenFrameError):
            reader(whole[:length])


@BOTH
@pytest.mark.parametrize(
    "content",
    [
        struct.pack(">II", LONGEST_HEADER + 1, 0),
        struct.pack(">II", 2, LONGEST_BODY + 1) + b"{}",
        frame_bytes([1]),
        struct.pack(">II", 3, 0) + b"{]}",
        struct.pack(">II", 2, 0) + b"\xff\xfe",
        struct.pack(">II", 17, 0) + b'{"id": 1, "id":2}',
    ],
)
def test_what_is_no_frame_is_an_error(reader, content):
    with pytest.raises(BrokenFrameError):
        reader(content)


def test_a_frame_beyond_the_limits_is_not_sent():
    with pytest.raises(BrokenFrameError):
        start_of({"name": "x" * LONGEST_HEADER}, 0)
    with pytest.raises(BrokenFrameError):
        start_of({}, LONGEST_BODY + 1)
