"""Every kind of image file: the scan, training and detect.py see what other programs show."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from tests.unit.data.image.kinds_of_images import (
    GRAY,
    HEIGHT,
    KINDS,
    PHOTO,
    WIDTH,
    encoded,
    tiff,
    turned,
)  # fmt: skip
from utils.data.image.decoding import decode_bytes, reduced_size
from utils.data.image.header import BrokenImageError, read_image_size
from utils.data.image.limits import IMAGE_SUFFIXES, MAX_PIXELS
from utils.data.sources.labels import scan_images
from utils.media.image_file import decode_image


def decoded(content: bytes, size: tuple[int, int] = (HEIGHT, WIDTH), reduction: int = 1):
    """What training sees, as RGB."""
    return decode_bytes(np.frombuffer(content, np.uint8), size, reduction)[..., ::-1]


def scanned(folder: Path, content: bytes) -> tuple[int, int]:
    path = folder / "a.png"
    path.write_bytes(content)
    return read_image_size(path)


@pytest.mark.parametrize("name", KINDS)
def test_an_image_is_seen_as_its_kind_says(name, tmp_path):
    content, seen, tolerance = KINDS[name]
    assert scanned(tmp_path, content) == (HEIGHT, WIDTH)
    found = decoded(content)
    assert found.dtype == np.uint8 and found.shape == (HEIGHT, WIDTH, 3)
    assert np.abs(found - np.asarray(seen, float)).max() <= tolerance
    assert np.abs(found - np.asarray(seen, float)).mean() <= tolerance / 2
    np.testing.assert_array_equal(decode_image(content, MAX_PIXELS), found)


@pytest.mark.parametrize("reduction", [2, 4, 8])
@pytest.mark.parametrize("name", KINDS)
def test_a_reduced_image_is_the_average_of_the_whole(name, reduction):
    content = KINDS[name].content
    whole = decoded(content).astype(float)
    found = decoded(content, reduction=reduction)
    height, width = HEIGHT // reduction, WIDTH // reduction  # of the squares that are full
    squares = whole[: height * reduction, : width * reduction]
    means = squares.reshape(height, reduction, width, reduction, 3).mean(axis=(1, 3))
    assert found.shape[:2] == reduced_size((HEIGHT, WIDTH), reduction)
    # A JPEG's colours are stored at half the size: they are averaged in another way.
    tolerance = 12 if name.startswith(("JPEG", "MPO")) else 0.5
    assert np.abs(found[:height, :width] - means).max() <= tolerance


@pytest.mark.parametrize("name", KINDS)
def test_the_scan_leaves_out_a_file_that_is_cut_off(name, tmp_path):
    content = KINDS[name].content
    if (
        "pages" in name
        or "animation" in name
        or name in ("MPO", "TIFF LZW", "TIFF Deflate", "TIFF Zstandard")
    ):
        content = content[: len(content) // 3]  # of the first page or frame, of the pixels
    for cut in range(len(content) - 13, 0, -(len(content) // 9)):
        with pytest.raises(BrokenImageError):
            scanned(tmp_path, content[:cut])


def upright(orientation: int) -> np.ndarray:
    """What CIPA DC-008 says of an orientation, by NumPy."""
    image = np.rot90(PHOTO, {1: 0, 2: 0, 3: 2, 4: 2, 5: -1, 6: -1, 7: 1, 8: 1}[orientation])
    return np.fliplr(image) if orientation in (2, 4, 5, 7) else image


LOSSES = {"JPEG": 14, "PNG": 0, "TIFF": 0, "AVIF": 24}


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("form", LOSSES)
def test_an_image_is_turned_once_as_pillow_turns_it(form, orientation, tmp_path):
    content = turned(form, orientation)
    with Image.open(io.BytesIO(content)) as opened:
        by_pillow = np.asarray(ImageOps.exif_transpose(opened), float)
    size = (WIDTH, HEIGHT) if orientation >= 5 else (HEIGHT, WIDTH)
    assert scanned(tmp_path, content) == size == by_pillow.shape[:2]
    found = decoded(content, size)
    assert np.abs(found - by_pillow).max() <= (3 if form == "JPEG" else 0)
    assert np.abs(found - upright(orientation).astype(float)).max() <= LOSSES[form]
    np.testing.assert_array_equal(decode_image(content, MAX_PIXELS), found)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_webp_stays_as_it_is_stored(orientation, tmp_path):
    """Chromium 149 and OpenCV ignore its EXIF, and a labelling tool shows what the browser does."""
    content = turned("WEBP", orientation, lossless=True)
    assert scanned(tmp_path, content) == (HEIGHT, WIDTH)
    np.testing.assert_array_equal(decoded(content), PHOTO)


@pytest.mark.parametrize(
    "content",
    [
        encoded(GRAY.astype(np.float32), "TIFF"),
        encoded(GRAY.astype(np.int32), "TIFF"),
        tiff(GRAY.astype("<u2"), 16, 1, tags=[(339, 2)]),
    ],
    ids=["float", "int32", "int16"],
)
def test_a_tiff_that_is_not_decoded_is_left_out_by_the_scan(content, tmp_path):
    with pytest.raises(BrokenImageError, match="a TIFF of 32-bit or signed numbers"):
        scanned(tmp_path, content)


@pytest.mark.parametrize("form", ["PNG", "GIF", "BMP", "TIFF"])
def test_damage_is_found_or_an_image_of_the_right_size_is_seen(form, tmp_path):
    content = KINDS[f"{form} gray"].content
    for place in range(0, len(content), 7):
        changed = bytearray(content)
        changed[place] ^= 0xFF
        try:
            size = scanned(tmp_path, bytes(changed))
            if size[0] * size[1] < 1_000_000:
                assert decoded(bytes(changed), size).shape == (*size, 3)
        except BrokenImageError:
            pass


def test_a_folder_gives_the_images_of_all_suffixes(tmp_path):
    """In capitals too; what a file is, its bytes say."""
    paths = [tmp_path / f"a{suffix}" for suffix in IMAGE_SUFFIXES]
    paths += [tmp_path / f"b{suffix.upper()}" for suffix in IMAGE_SUFFIXES]
    for path in paths:
        path.write_bytes(encoded(PHOTO, "GIF"))
    assert len(scan_images(paths, 1).samples) == 28
