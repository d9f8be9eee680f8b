"""Image files of all kinds -> RGB, and what is said of those that are none."""

import os
import resource
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

from duet.utils.detect.media.image_file import ImageFile
from duet.utils.errors import BrokenSourceError
from duet.utils.image_limits import MAX_PIXELS
from tests.unit.data.image_files import HEIGHT, PHOTO, WIDTH, encoded


def read(path: Path, max_pixels: int = MAX_PIXELS) -> np.ndarray:
    (frame,) = ImageFile(path, max_pixels).frames()
    assert frame.source == path and frame.number is None and frame.seconds is None
    return frame.image


def png_of(height: int, width: int) -> bytes:
    """A PNG of zeros that says it has so many pixels."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        checksum = struct.pack(">I", zlib.crc32(kind + body))
        return struct.pack(">I", len(body)) + kind + body + checksum

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    row = zlib.compress(bytes(1000))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", row) + chunk(b"IEND", b"")


def write_part(path: Path, kind: str, part: float) -> None:
    content = encoded(PHOTO, kind)
    path.write_bytes(content[: int(part * len(content))])


HOSTILE = {
    "text": (lambda path: path.write_text("no image\n" * 50), "not an image"),
    "empty": (lambda path: path.touch(), "the file is empty"),
    "FIFO": (os.mkfifo, "is a FIFO"),
    "device": (lambda path: path.symlink_to("/dev/zero"), "is a device"),
    "folder": (lambda path: path.mkdir(), "is a folder"),
    "absent": (lambda path: None, "No such file"),
    "PNG of 30,000 px": (lambda path: path.write_bytes(png_of(30000, 30000)), "--max-pixels"),
    "holes": (lambda path: (path.touch(), os.truncate(path, 1 << 31)), "at most"),
    "half a JPEG": (lambda path: write_part(path, "JPEG", 0.8), "truncated"),
    "most of a PNG": (lambda path: write_part(path, "PNG", 0.9), "truncated|damaged"),
    "half a GIF": (lambda path: write_part(path, "GIF", 0.7), "truncated|damaged"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_broken_image_has_one_short_reason(kind, tmp_path):
    make, reason = HOSTILE[kind]
    path = tmp_path / "\x1b[31m\udce9.jpg"
    make(path)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(BrokenSourceError, match=reason) as raised:
        read(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 * 1024  # KiB
    assert len(str(raised.value)) < 200 and str(raised.value).isprintable()


def test_pixel_limit_is_exact(tmp_path):
    path = tmp_path / "a.png"
    path.write_bytes(encoded(PHOTO, "PNG"))
    assert read(path, HEIGHT * WIDTH).shape == (HEIGHT, WIDTH, 3)
    with pytest.raises(BrokenSourceError, match="42x26 px are 1,092"):
        read(path, HEIGHT * WIDTH - 1)
