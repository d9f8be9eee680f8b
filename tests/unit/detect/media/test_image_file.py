"""Image files of all kinds -> RGB, and what is said of those that are none."""

from __future__ import annotations

import io
import os
import resource
import struct
import zlib
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

from utils.data.image.limits import MAX_PIXELS
from utils.detect.media.image_file import ImageFile, decode_image
from utils.detect.media.source import BrokenSourceError

HEIGHT, WIDTH = 40, 60


def photo() -> np.ndarray:
    """A smooth image (H, W, 3) whose corners differ."""
    rows, columns = np.mgrid[:HEIGHT, :WIDTH]
    return np.stack([rows * 6, columns * 4, 255 - rows * 3 - columns * 2], 2).astype(np.uint8)


def encoded(image: Image.Image, kind: str, **options) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def read(path: Path, max_pixels: int = MAX_PIXELS) -> np.ndarray:
    (frame,) = ImageFile(path, max_pixels).frames()
    assert frame.source == path and frame.number is None and frame.seconds is None
    return frame.image


# What each kind and mode may lose: nothing, or what a codec, a palette or one bit takes.
@pytest.mark.parametrize(
    ("kind", "mode", "loss"),
    [
        ("PNG", "RGB", 0), ("PNG", "RGBA", 0), ("BMP", "RGB", 0), ("TIFF", "RGB", 0),
        ("WEBP", "RGB", 20), ("JPEG", "RGB", 12), ("JPEG", "CMYK", 12), ("AVIF", "RGB", 16),
        ("AVIF", "RGBA", 16), ("GIF", "RGB", 40), ("PNG", "P", 60),
    ],
)  # fmt: skip
def test_a_colour_image_is_rgb_with_its_colours(kind, mode, loss):
    image = Image.fromarray(photo())
    content = encoded(image if mode == "RGB" else image.convert(mode), kind)
    found = decode_image(content, MAX_PIXELS)
    assert found.dtype == np.uint8 and found.shape == (HEIGHT, WIDTH, 3)
    assert np.abs(found.astype(int) - photo()).max() <= loss


# Which pixel of the upright image is the stored one at the top left, by EXIF orientation.
CORNERS = {1: (0, 0), 2: (0, -1), 3: (-1, -1), 4: (-1, 0), 5: (0, 0), 6: (0, -1), 7: (-1, -1),
           8: (-1, 0)}  # fmt: skip


@pytest.mark.parametrize("orientation", CORNERS)
@pytest.mark.parametrize("kind", ["JPEG", "AVIF"])
def test_exif_turns_an_image_once(kind, orientation):
    stored = np.zeros((40, 60, 3), np.uint8)
    stored[:10, :10] = 255
    exif = Image.Exif()
    exif[0x0112] = orientation
    found = decode_image(encoded(Image.fromarray(stored), kind, exif=exif), MAX_PIXELS)
    assert found.shape == ((60, 40, 3) if orientation >= 5 else (40, 60, 3))
    corners = {
        corner: found[corner].mean() > 128 for corner in ((0, 0), (0, -1), (-1, 0), (-1, -1))
    }
    assert [corner for corner, is_white in corners.items() if is_white] == [CORNERS[orientation]]


def png_of(height: int, width: int) -> bytes:
    """A PNG of zeros that says it has so many pixels."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        checksum = struct.pack(">I", zlib.crc32(kind + body))
        return struct.pack(">I", len(body)) + kind + body + checksum

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    row = zlib.compress(bytes(1000))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", row) + chunk(b"IEND", b"")


def write_part(path: Path, kind: str, part: float) -> None:
    content = encoded(Image.fromarray(photo()), kind)
    path.write_bytes(content[: int(part * len(content))])


HOSTILE = {
    "text": (lambda path: path.write_text("no image\n" * 50), "not an image"),
    "empty": (lambda path: path.touch(), "not an image"),
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
def test_what_is_no_image_has_one_short_reason(kind, tmp_path):
    make, reason = HOSTILE[kind]
    path = tmp_path / "\x1b[31m\udce9.jpg"
    make(path)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(BrokenSourceError, match=reason) as raised:
        read(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 * 1024  # KiB
    assert len(str(raised.value)) < 200 and str(raised.value).isprintable()


def test_the_limit_of_pixels_is_exact(tmp_path):
    path = tmp_path / "a.png"
    cv2.imwrite(str(path), photo())
    assert read(path, HEIGHT * WIDTH).shape == (HEIGHT, WIDTH, 3)
    with pytest.raises(BrokenSourceError, match="60x40 px are 2,400"):
        read(path, HEIGHT * WIDTH - 1)
