"""PNG chunks: damaged ones are found, and an animation is left out before it is decoded."""

import io
import struct
import subprocess
import sys
import zlib

import cv2
import numpy as np
import pytest
from PIL import Image

from utils.data.image import png
from utils.data.image.decoding import decode_bytes
from utils.data.image.header import BrokenImageError, read_image_size
from utils.data.image.png import SIGNATURE, BrokenPngError, check_png, without_extras
from utils.files.project import PROJECT

SIDE = 16


def chunk(kind: bytes, content: bytes = b"") -> bytes:
    """Return a whole chunk."""
    checksum = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)


def pixels(filter_byte: int, grey: int) -> bytes:
    """Return compressed rows of one grey, the first one with this filter."""
    row = bytes([grey]) * (3 * SIDE)
    return zlib.compress(bytes([filter_byte]) + row + (b"\0" + row) * (SIDE - 1))


def frame(number: int) -> bytes:
    return chunk(b"fcTL", struct.pack(">5I2HBB", number, SIDE, SIDE, 0, 0, 1, 10, 0, 0))


def animated(filter_byte: int = 0, before: bytes = frame(0)) -> bytes:
    """Return a PNG of two frames of the greys 50 and 200."""
    header = struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)
    return (
        SIGNATURE
        + chunk(b"IHDR", header)
        + chunk(b"acTL", struct.pack(">II", 2, 0))
        + before
        + chunk(b"IDAT", pixels(filter_byte, 50))
        + frame(1)
        + chunk(b"fdAT", struct.pack(">I", 2) + pixels(0, 200))
        + chunk(b"IEND")
    )


def as_array(content: bytes) -> np.ndarray:
    return np.frombuffer(content, np.uint8)


DECODE = """
import sys
import numpy as np
from utils.data.image.decoding import decode_bytes
from utils.data.image.header import BrokenImageError
try:
    decode_bytes(np.frombuffer(sys.stdin.buffer.read(), np.uint8), (16, 16))
except BrokenImageError as error:
    print(error)
"""


@pytest.mark.parametrize("filter_byte", [5, 255])
def test_a_damaged_first_frame_is_an_error_and_no_crash(filter_byte):
    # OpenCV 4.11 decodes it by itself with a segmentation fault.
    ended = subprocess.run(
        [sys.executable, "-c", DECODE], cwd=PROJECT, input=animated(filter_byte),
        capture_output=True, timeout=60,
    )  # fmt: skip
    assert (ended.returncode, ended.stdout) == (0, b"damaged after its header\n")


# Without one in front of it, the image is not part of the animation.
@pytest.mark.parametrize("before", [frame(0), b""], ids=["in it", "apart"])
def test_an_animation_is_decoded_as_the_image_that_all_programs_show(before):
    expected = np.full((SIDE, SIDE, 3), 50, np.uint8)
    image = decode_bytes(as_array(animated(before=before)), (SIDE, SIDE))
    np.testing.assert_array_equal(image, expected)


@pytest.mark.parametrize(
    "before",
    [chunk(b"fcTL"), chunk(b"acTL"), frame(0) + chunk(b"fdAT", bytes(9)), frame(7) * 3],
    ids=["short frame", "short control", "data before the image", "wrong order"],
)
def test_a_damaged_animation_is_left_out_or_refused(before):
    content = as_array(animated(before=before))
    kinds = [content[:8].tobytes(), b"IHDR", b"IDAT", b"IEND"]
    left = without_extras(content).tobytes()
    assert [kind for kind in kinds if kind in left] == kinds
    assert not any(kind in left for kind in (b"acTL", b"fcTL", b"fdAT"))
    with pytest.raises(BrokenImageError, match="broken PNG header"):
        decode_bytes(content, (SIDE, SIDE))


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "P", "L", "LA", "1"])
def test_what_pillow_saves_as_an_animation_gives_its_first_frame(mode, tmp_path):
    generator = np.random.Generator(np.random.Philox(5))
    arrays = [(generator.random((40, 32, 4)) * 255).astype(np.uint8) for _ in range(3)]
    frames = [Image.fromarray(array).convert(mode) for array in arrays]
    still, moving = tmp_path / "still.png", tmp_path / "moving.png"
    frames[0].save(still)
    frames[0].save(moving, save_all=True, append_images=frames[1:])
    assert b"acTL" in moving.read_bytes()
    assert read_image_size(moving) == (40, 32)
    image = decode_bytes(as_array(moving.read_bytes()), (40, 32))
    with Image.open(still) as opened:
        seen = Image.new("RGBA", (32, 40), "white")
        seen.alpha_composite(opened.convert("RGBA"))
    # Pillow rounds in its own way where half of the white shows through.
    expected = np.asarray(seen.convert("RGB"))[..., ::-1].astype(int)
    assert np.abs(image - expected).max() <= (1 if mode in ("RGBA", "LA") else 0)


def test_a_colour_profile_changes_no_pixel_and_prints_nothing(capfd):
    """libpng warns of profiles that many programs write; OpenCV converts no colours by them."""
    image = np.arange(20 * 20 * 3, dtype=np.uint8).reshape(20, 20, 3)
    plain = cv2.imencode(".png", image)[1].tobytes()
    end = len(SIGNATURE) + 25  # of the header
    profile = chunk(b"iCCP", b"name\0\0" + zlib.compress(b"no profile" * 20))
    decoded = decode_bytes(as_array(plain[:end] + profile + plain[end:]), (20, 20))
    np.testing.assert_array_equal(decoded, image)
    assert capfd.readouterr().err == ""


def test_a_still_image_is_not_copied():
    _, encoded = cv2.imencode(".png", np.zeros((20, 20, 3), np.uint8))
    content = encoded.reshape(-1)
    assert without_extras(content) is content


@pytest.mark.parametrize("length", [0xFFFFFFFF, 0xFFFFFFF4, 0x7FFFFFFF, 1000])
def test_a_chunk_behind_the_end_of_the_file_is_an_error(length):
    # OpenCV adds 12 to the length, in 32 bits.
    content = animated(before=struct.pack(">I", length) + b"junk" + bytes(50))
    with pytest.raises(BrokenPngError, match="truncated"):
        check_png(io.BytesIO(content))
    with pytest.raises(BrokenImageError):
        decode_bytes(as_array(content), (SIDE, SIDE))


def test_every_chunk_is_compared_with_its_checksum():
    content = animated()
    check_png(io.BytesIO(content + b"appended"))
    for position in range(len(SIGNATURE), len(content)):
        changed = bytearray(content)
        changed[position] ^= 1
        with pytest.raises(BrokenPngError):
            check_png(io.BytesIO(changed))
    for end in range(len(SIGNATURE), len(content)):
        with pytest.raises(BrokenPngError, match="truncated"):
            check_png(io.BytesIO(content[:end]))


def test_more_chunks_than_any_image_has_end_the_reading(monkeypatch):
    monkeypatch.setattr(png, "MAX_CHUNKS", 50)
    content = animated(before=chunk(b"teSt") * 50)
    with pytest.raises(BrokenPngError, match="over 50 chunks"):
        check_png(io.BytesIO(content))
