"""Every kind of image file: the scan, training and detect.py see what other programs show."""

import base64
import io
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from duet.utils.data.image.decoding import decode_bytes, orientation_of_matrix
from duet.utils.data.image.header import (
    BrokenImageError,
    check_file,
    known_orientation,
    recognise,
)
from duet.utils.data.image.letterbox import reduced_size
from duet.utils.data.sources.image_sources import ImageFile
from duet.utils.data.sources.splits import scan_samples
from duet.utils.detect.media.image_file import decode_image
from duet.utils.errors import BrokenSourceError, DatasetError
from duet.utils.image_limits import IMAGE_SUFFIXES, MAX_PIXELS
from duet.utils.optional import install_command
from tests.unit.data.image_files import (
    GRAY,
    HEIGHT,
    KINDS,
    PHOTO,
    WIDTH,
    encoded,
    turned,
)  # fmt: skip


def decoded(content: bytes, size: tuple[int, int] = (HEIGHT, WIDTH), reduction: int = 1):
    """What training sees, as RGB."""
    return decode_bytes(np.frombuffer(content, np.uint8), size, reduction)[..., ::-1]


def scanned(folder: Path, content: bytes) -> tuple[int, int]:
    path = folder / "a.png"
    path.write_bytes(content)
    return check_file(path).size


@pytest.mark.parametrize("name", KINDS)
def test_each_image_kind_decodes_to_its_pixels(name, tmp_path):
    content, seen, tolerance = KINDS[name]
    assert scanned(tmp_path, content) == (HEIGHT, WIDTH)
    found = decoded(content)
    assert found.dtype == np.uint8 and found.shape == (HEIGHT, WIDTH, 3)
    assert np.abs(found - np.asarray(seen, float)).max() <= tolerance
    assert np.abs(found - np.asarray(seen, float)).mean() <= tolerance / 2
    np.testing.assert_array_equal(decode_image(content, MAX_PIXELS), found)


@pytest.mark.parametrize("reduction", [2, 4, 8])
@pytest.mark.parametrize("name", KINDS)
def test_reduced_image_is_the_average_of_the_whole(name, reduction):
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
def test_scan_refuses_truncated_files(name, tmp_path):
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


def upright(orientation: int, image: np.ndarray = PHOTO) -> np.ndarray:
    """What CIPA DC-008 says of an orientation, by NumPy."""
    image = np.rot90(image, {1: 0, 2: 0, 3: 2, 4: 2, 5: -1, 6: -1, 7: 1, 8: 1}[orientation])
    return np.fliplr(image) if orientation in (2, 4, 5, 7) else image


LOSSES = {"JPEG": 14, "PNG": 0, "TIFF": 0, "AVIF": 24}


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("form", LOSSES)
def test_exif_orientation_is_applied_once_as_in_pillow(form, orientation, tmp_path):
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
def test_webp_ignores_exif_orientation(orientation, tmp_path):
    """Chromium 149 and OpenCV ignore its EXIF, and a labelling tool shows what the browser does."""
    content = turned("WEBP", orientation, lossless=True)
    assert scanned(tmp_path, content) == (HEIGHT, WIDTH)
    np.testing.assert_array_equal(decoded(content), PHOTO)


@pytest.mark.parametrize("value", [None, 0, 9, 65535, "6", (6, 6), 6.0, b"6", True + 8])
def test_unknown_orientation_counts_as_upright(value):
    assert known_orientation(value) == 1


@pytest.mark.parametrize("orientation", range(1, 9))
def test_video_matrix_maps_to_the_equivalent_orientation(orientation):
    stored = np.arange(8).reshape(2, 4)
    seen = upright(orientation, stored)
    # The centres of pixels from the middle, as columns and rows: where each lies, is seen.
    places = [
        [(column - (image.shape[1] - 1) / 2, row - (image.shape[0] - 1) / 2)
         for row, column in (np.argwhere(image == number)[0] for number in range(8))]
        for image in (stored, seen)
    ]  # fmt: skip
    (a, b), (c, d) = np.round(np.linalg.lstsq(*map(np.array, places), rcond=None)[0]).tolist()
    matrix = [a, b, 0, c, d, 0, 0, 0, 1 << 14]
    assert orientation_of_matrix([int(number) << 16 for number in matrix]) == orientation


@pytest.mark.parametrize(
    "content",
    [encoded(GRAY.astype(np.float32), "TIFF"), encoded(GRAY.astype(np.int32), "TIFF")],
    ids=["float", "int32"],
)
def test_undecodable_tiff_is_refused_by_the_scan(content, tmp_path):
    with pytest.raises(BrokenImageError, match="a TIFF of 32-bit or signed numbers"):
        scanned(tmp_path, content)


def test_folder_scan_accepts_all_image_suffixes(tmp_path):
    """In capitals too; what a file is, its bytes say."""
    paths = [tmp_path / f"a{suffix}" for suffix in IMAGE_SUFFIXES]
    paths += [tmp_path / f"b{suffix.upper()}" for suffix in IMAGE_SUFFIXES]
    for path in paths:
        path.write_bytes(encoded(PHOTO, "GIF"))
    assert len(scan_samples(list(map(ImageFile, paths)), 1, needs_objects=False).samples) == 28


# PHOTO as a phone stores it that is held upright: to be turned by a quarter, as EXIF says too.
HEIC = base64.b64decode(
    """
AAAAHGZ0eXBoZWljAAAAAG1pZjFoZWljbWlhZgAAAcdtZXRhAAAAAAAAACFoZGxyAAAAAAAAAABwaWN0AAAAAAAAAAAAAA
AAAAAAADRpbG9jAAAAAERAAAIAAQAAAAAB6wABAAAAAAAAATUAAgAAAAADIAABAAAAAAAAACQAAAA4aWluZgAAAAAAAgAA
ABVpbmZlAgAAAAABAABodmMxAAAAABVpbmZlAgAAAQACAABFeGlmAAAAAA5waXRtAAAAAAABAAABBmlwcnAAAADlaXBjbw
AAAHVodmNDAQNwAAAAkAAAAAAAHvAA/P34+AAADwNgAAEAGEABDAH//wNwAAADAJAAAAMAAAMAHroCQGEAAQApQgEBA3AA
AAMAkAAAAwAAAwAeoCCBBZbqrprm4CGgwIAAAAyAAAADAIRiAAEABkQBwXPBiQAAABNjb2xybmNseAABAA0ABoAAAAAUaX
NwZQAAAAAAAABAAAAAQAAAAChjbGFwAAAAKgAAAAEAAAAaAAAAAf///+oAAAAC////2gAAAAIAAAAQcGl4aQAAAAADCAgI
AAAACWlyb3QDAAAAGWlwbWEAAAAAAAAAAQABBoECAwWEhgAAABppcmVmAAAAAAAAAA5jZHNjAAIAAQABAAABYW1kYXQAAA
ExKAGvBPIIiW8ggN881IUh8jUnvY74J6n3hvoXuI9DFv/p+t7o9gvV8stwlhHFPVrWM/F+WTdWlBXDVQr+ajZ7Cl0pErQq
V7qy+hJ9rCfbjLqdNPFndOKY1lHlvzFEA7ySwycGJcc2aCIkAuC8gsDUTxZVkXWu8B46dl5QoYMe0sdDcRKYQEUphAW0Y8
3deaQOCtuUOD7LXB+gQd4uhB7nU0i+SL6DcveOViWjAMlO+xrTBNd9u9EWvC/oNhGg2LEn1xwbUMEEFJSjw81FKQLNf55b
8voFKyXtIbhM0qNGLpV7eeGZGMcw0QR2+MUPlQau0rOk0wpG/IWg9OVH4D8jGi4HRxRVe4Z4t9eL4JUsiCHjtrnD2OCM2s
UuX1GNgzlMLkYgCXo7P/tqPAIjfrDRDvwAAAAGRXhpZgAATU0AKgAAAAgAAQESAAMAAAABAAYAAAAAAAA=
"""
)


def file_type(brand: bytes, *compatible: bytes) -> bytes:
    content = b"ftyp" + brand + bytes(4) + b"".join(compatible)
    return (len(content) + 4).to_bytes(4, "big") + content


@pytest.mark.parametrize(
    ("start", "kind"),
    [
        (file_type(b"heic", b"mif1", b"heic"), "HEIC"),
        (file_type(b"mif1", b"heic"), "HEIC"),
        (file_type(b"avif", b"mif1"), "AVIF"),
        (file_type(b"mif1", b"miaf", b"avif"), "AVIF"),
        (file_type(b"isom") + b"heic", ""),
        (b"\xff\xff\xff\xffftypmif1" + bytes(4) + b"avif", "AVIF"),
        (b"\0\0\0\x18ftyp", ""),
    ],
)
def test_file_brands_tell_heic_from_avif_and_video(start, kind):
    assert recognise(start) == kind


def test_missing_heic_decoder_is_reported_with_its_command(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pi_heif", None)
    path = tmp_path / "IMG_0001.HEIC"
    path.write_bytes(HEIC)
    command = f"a HEIC image needs pi_heif; install it: {install_command('pi_heif')}"
    with pytest.raises(DatasetError) as none_usable:
        scan_samples([ImageFile(path)], 1)
    with pytest.raises(BrokenSourceError) as undetected:
        decode_image(HEIC, MAX_PIXELS)
    assert f"{path}: left out: {command}" in str(none_usable.value)
    assert str(undetected.value) == command
    other = tmp_path / "a.png"
    other.write_bytes(encoded(PHOTO, "PNG"))
    report = scan_samples([ImageFile(path), ImageFile(other)], 1, needs_objects=False)
    assert len(report.samples) == 1 and report.problems == [f"{path}: left out: {command}"]


def test_heic_photo_is_decoded_upright(tmp_path):
    assert scanned(tmp_path, HEIC) == (WIDTH, HEIGHT)
    found = decode_bytes(np.frombuffer(HEIC, np.uint8), (WIDTH, HEIGHT))[..., ::-1]
    assert np.abs(found.astype(int) - np.rot90(PHOTO, -1)).max() <= 24
    np.testing.assert_array_equal(decode_image(HEIC, MAX_PIXELS), found)
    half = decode_bytes(np.frombuffer(HEIC, np.uint8), (WIDTH, HEIGHT), 2)
    assert half.shape == (WIDTH // 2, HEIGHT // 2, 3)


def test_truncated_heic_is_refused(tmp_path):
    for length in range(12, len(HEIC) - 1, 40):
        with pytest.raises(BrokenSourceError, match="damaged|broken"):
            decode_image(HEIC[:length], MAX_PIXELS)
