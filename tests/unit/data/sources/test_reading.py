"""Decoding a sample: whole, and at a fraction of the size."""

import io
import zlib

import cv2
import numpy as np
import pytest

from duet.utils.data.image.decoding import choose_reduction
from duet.utils.data.image.header import BrokenImageError, read_header
from duet.utils.data.sources.image_sources import RecordPlace
from duet.utils.data.sources.samples import Sample, decode
from duet.utils.errors import DatasetError

SIZE = (200, 133)


def smooth_image() -> np.ndarray:
    """Return smooth colours with some noise, (200, 133, 3)."""
    random = np.random.Generator(np.random.Philox(0))
    small = np.rint(random.random((13, 9, 3)) * 255).astype(np.uint8)
    noise = random.random((*SIZE, 3)) * 20 - 10
    smooth = cv2.resize(small, SIZE[::-1], interpolation=cv2.INTER_CUBIC)
    return (smooth + noise).clip(0, 255).astype(np.uint8)


def write(path, *options) -> Sample:
    assert cv2.imwrite(str(path), smooth_image(), options)
    return Sample(path, *SIZE, np.zeros(0, np.int64), np.zeros((0, 4), np.float32))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not an image"),
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
def test_a_broken_header_or_that_of_another_kind_is_refused(content, reason):
    with pytest.raises(BrokenImageError, match=f"^{reason}"):
        read_header(io.BytesIO(content))


@pytest.mark.parametrize(
    ("size", "long_side", "reduction"),
    [
        ((480, 640), 640, 1), ((480, 1279), 640, 1), ((1280, 480), 640, 2), ((480, 640), 320, 2),
        ((3000, 4000), 640, 4), ((6000, 9000), 640, 8), ((100, 100), 640, 1),
    ],
)  # fmt: skip
def test_an_image_is_reduced_to_no_less_than_the_size_it_is_needed_in(size, long_side, reduction):
    assert choose_reduction(size, long_side) == reduction


@pytest.mark.parametrize(
    ("packed", "message"),
    [(False, "was scanned; start again"), (True, "was packed; pack the dataset again")],
)
def test_another_size_tells_what_to_do_about_it(tmp_path, packed, message):
    path = write(tmp_path / "a.jpg").image_path.rename(tmp_path / "a.ffr")
    content = path.read_bytes()
    place = RecordPlace(path, 0, 0, len(content), zlib.crc32(content)) if packed else None
    sample = Sample(path, 190, 133, *[np.zeros(0)] * 2, place)
    with pytest.raises(DatasetError, match=f"{path}: .*133x190 px when the dataset {message}"):
        decode(sample)


@pytest.mark.parametrize("reduction", [1, 2])
@pytest.mark.parametrize("content", [b"", b"\xff\xd8\xff no image"], ids=["empty", "broken"])
def test_an_image_that_cannot_be_decoded_is_named(tmp_path, reduction, content):
    path = tmp_path / "a.jpg"
    path.write_bytes(content)
    sample = Sample(path, *SIZE, np.zeros(0, np.int64), np.zeros((0, 4), np.float32))
    with pytest.raises(DatasetError, match=f"{path}: the image cannot be decoded"):
        decode(sample, reduction)
