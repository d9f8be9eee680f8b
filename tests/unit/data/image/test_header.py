"""What a hostile header can do: no more than be refused, within a bounded time and memory."""

import io
import struct
import tracemalloc

import numpy as np
import pytest
from PIL import Image

from duet.utils.data.image.decoding import OtherSizeError, decode_bytes
from duet.utils.data.image.header import (
    BrokenImageError,
    check_file,
    check_size,
    read_header,
    with_end,
)
from tests.unit.data.image_files import encoded


def plain(kind: str, **options) -> bytes:
    return encoded(Image.new("RGB", (40, 30), (9, 99, 200)), kind, **options)


def with_segments(jpeg: bytes, *segments: bytes) -> bytes:
    """Return a JPEG with APP1 segments."""
    parts = [b"\xff\xe1" + struct.pack(">H", len(segment) + 2) + segment for segment in segments]
    return b"".join([jpeg[:2], *parts, jpeg[2:]])


@pytest.fixture(autouse=True)
def bounded_memory():
    """No test decodes the image that its header states."""
    tracemalloc.start()
    yield
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 60 << 20


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "BMP", "WEBP", "TIFF", "GIF"])
def test_image_of_another_size_is_not_decoded(kind):
    with pytest.raises(OtherSizeError) as caught:
        decode_bytes(np.frombuffer(plain(kind), np.uint8), (30, 41))
    assert caught.value.size == (30, 40)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "the file is empty"),
        (b"\xff\xd8\xff\xc0\0\x11\x08", "broken JPEG header"),
        (b"\x89PNG\r\n\x1a\n" + bytes(50), "broken PNG header"),
        (b"RIFF\x64\0\0\0WEBPVP8X" + bytes(100), "broken WEBP header"),
        (b"II*\0\x08\0\0\0" + bytes(100), "broken TIFF header"),
        (b"GIF89a" + bytes(100), "broken GIF header"),
        (
            b"8BPS\0\1" + bytes(100),
            "not an image that is decoded; accepted: AVIF, BMP, GIF, JPEG, PNG, TIFF, WEBP, HEIC",
        ),
        (b"\x76\x2f\x31\x01" + bytes(100), "not an image"),  # OpenEXR, which OpenCV decodes
    ],
)
def test_broken_or_foreign_header_is_refused(content, reason):
    with pytest.raises(BrokenImageError, match=f"^{reason}"):
        read_header(io.BytesIO(content))


def run_length_bitmap(side: int, code: bytes) -> bytes:
    """Return a BMP of 8 bits a pixel in run-length code.

    Source: Microsoft, "Bitmap Compression": 0 2 right up is a jump, n v are n pixels of a value.
    """
    palette = bytes(1024)
    start = 54 + len(palette)
    file = b"BM" + struct.pack("<IHHI", start + len(code), 0, 0, start)
    sizes = struct.pack("<IiiHHIIiiII", 40, side, side, 1, 8, 1, len(code), 0, 0, 256, 0)
    return file + sizes + palette + code


def test_bitmap_of_more_pixels_than_its_bytes_is_refused(tmp_path):
    path = tmp_path / "a.bmp"
    path.write_bytes(run_length_bitmap(510, (b"\xff\1" * 2 + b"\0\0") * 510))
    assert check_file(path).size == (510, 510)
    path.write_bytes(run_length_bitmap(13_000, b"\0\2\xff\xff" * 60))
    with pytest.raises(BrokenImageError, match="1,318 bytes do not hold its 169,000,000 pixels"):
        check_file(path)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "BMP", "WEBP", "TIFF", "GIF"])
def test_header_beyond_the_pixel_limit_is_refused(tmp_path, kind):
    path = tmp_path / "a.png"
    path.write_bytes(plain(kind))
    assert check_file(path, max_pixels=1200).size == (30, 40)
    with pytest.raises(BrokenImageError, match="40x30 px are 1,200, over the limit of 1,199"):
        check_file(path, max_pixels=1199)


@pytest.mark.parametrize("size", [(30, (1 << 20) + 1), (1 << 16, (1 << 14) + 1)])
def test_size_beyond_opencv_is_refused_at_any_limit(size):
    with pytest.raises(BrokenImageError, match="at most 1,048,576 per side and 1,073,741,824 are"):
        check_size(size, max_pixels=1 << 40)
    check_size((1 << 16, 1 << 14), max_pixels=1 << 40)


def photo(seed: int = 0) -> bytes:
    """A JPEG in which every bit matters: noise."""
    pixels = np.random.default_rng(seed).integers(0, 256, (24, 40, 3), np.uint8)
    return encoded(pixels, "JPEG", quality=95)


def test_jpeg_lacking_only_its_end_mark_is_read(tmp_path):
    path, whole = tmp_path / "a.jpg", photo()
    for content, lacks_end in ((whole, False), (whole[:-2], True), (whole[:-1], True)):
        path.write_bytes(content)
        assert check_file(path) == ((24, 40), lacks_end)
        pixels = decode_bytes(np.frombuffer(content, np.uint8), (24, 40))
        np.testing.assert_array_equal(
            pixels, decode_bytes(np.frombuffer(whole, np.uint8), (24, 40))
        )
    for content in (whole + bytes(5), with_end(whole[:-2])):  # a camera appends data
        path.write_bytes(content)
        assert not check_file(path).lacks_end


def test_truncated_jpeg_is_refused(tmp_path):
    path, cut = tmp_path / "a.jpg", range(3, 60)
    contents = [photo(seed)[:-number] for number, seed in zip(cut, cut, strict=True)]
    for content in [*contents, plain("JPEG", progressive=True)[:-2]]:
        path.write_bytes(content)
        with pytest.raises(BrokenImageError, match="truncated: the JPEG file does not reach"):
            check_file(path)


TAGS = [struct.pack("<HHII", number + 1, 7, 60_000, 100) for number in range(5000)]
EXIF = b"Exif\0\0II*\0" + struct.pack("<IH", 8, len(TAGS)) + b"".join(TAGS)


@pytest.mark.parametrize(
    "content",
    [
        with_segments(plain("JPEG"), EXIF.ljust(65_533, b"\0")),  # 300 MB without a bound
        with_segments(plain("JPEG"), *[b"Exif\0\0" + bytes(10)] * 100_000),
        b"\xff\xd8" + b"\xff" * 5_000_000,
        b"\xff\xd8\xff\xdb\0\2" + bytes(5_000_000),
    ],
    ids=["tags", "segments", "padding", "rubbish"],
)
def test_endless_header_is_abandoned(content):
    file = io.BytesIO(content)
    with pytest.raises(BrokenImageError, match="longer than that of any image"):
        read_header(file)
    assert file.tell() < 1 << 20


def test_jpeg_that_repeats_its_scans_is_refused():
    jpeg = plain("JPEG", progressive=True)
    scan = jpeg[jpeg.rfind(b"\xff\xda") : -2]
    large = encoded(Image.new("RGB", (5000, 5000)), "JPEG", progressive=True)
    repeated = np.frombuffer(large[:-2] + scan * 200 + large[-2:], np.uint8)
    with pytest.raises(BrokenImageError, match="210 scans over 5000x5000 px"):
        decode_bytes(repeated, (5000, 5000))
