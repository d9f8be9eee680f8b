"""HEIC: seen upright where its decoder is installed, else the command that installs it is named."""

from __future__ import annotations

import base64
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.unit.data.image.kinds_of_images import HEIGHT, PHOTO, WIDTH, encoded
from utils.data.image.decoding import decode_bytes
from utils.data.image.header import BrokenImageError, read_image_size
from utils.data.image.limits import MAX_PIXELS
from utils.data.image.pillow_image import recognise
from utils.data.sources.labels import scan_images
from utils.errors import DatasetError
from utils.media.image_file import decode_image
from utils.media.source import BrokenSourceError
from utils.optional import INSTALL

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
        (file_type(b"msf1", b"hevc"), "HEIC"),
        (file_type(b"avif", b"mif1"), "AVIF"),
        (file_type(b"mif1", b"miaf", b"avif"), "AVIF"),
        (file_type(b"isom", b"mp42"), ""),
        (file_type(b"isom") + b"heic", ""),
        (b"\xff\xff\xff\xffftypmif1" + bytes(4) + b"avif", "AVIF"),
        (b"\0\0\0\0ftypisom" + bytes(60), ""),
        (b"\0\0\0\x18ftyp", ""),
    ],
)
def test_the_brands_of_a_file_tell_heic_from_avif_and_video(start, kind):
    assert recognise(start) == kind


def test_without_the_decoder_each_reader_names_the_command(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pi_heif", None)
    path = tmp_path / "IMG_0001.HEIC"
    path.write_bytes(HEIC)
    command = f"a HEIC image needs pi_heif: {INSTALL['pi_heif']}"
    with pytest.raises(DatasetError) as none_usable:
        scan_images([path], 1)
    with pytest.raises(BrokenSourceError) as undetected:
        decode_image(HEIC, MAX_PIXELS)
    assert f"{path}: left out: {command}" in str(none_usable.value)
    assert str(undetected.value) == command
    other = tmp_path / "a.png"
    other.write_bytes(encoded(PHOTO, "PNG"))
    report = scan_images([path, other], 1)
    assert len(report.samples) == 1 and report.problems == [f"{path}: left out: {command}"]


def write(folder: Path, content: bytes) -> Path:
    path = folder / "a.heic"
    path.write_bytes(content)
    return path


def test_a_photo_is_seen_upright(tmp_path):
    assert read_image_size(write(tmp_path, HEIC)) == (WIDTH, HEIGHT)
    found = decode_bytes(np.frombuffer(HEIC, np.uint8), (WIDTH, HEIGHT))[..., ::-1]
    assert np.abs(found.astype(int) - np.rot90(PHOTO, -1)).max() <= 24
    np.testing.assert_array_equal(decode_image(HEIC, MAX_PIXELS), found)
    half = decode_bytes(np.frombuffer(HEIC, np.uint8), (WIDTH, HEIGHT), 2)
    assert half.shape == (WIDTH // 2, HEIGHT // 2, 3)


def test_a_photo_over_the_limit_is_refused_by_its_header(tmp_path):
    with pytest.raises(BrokenImageError, match="26x42 px are 1,092, over the limit of 1,091"):
        read_image_size(write(tmp_path, HEIC), HEIGHT * WIDTH - 1)


def test_a_cut_off_photo_is_refused(tmp_path):
    for length in range(12, len(HEIC) - 1, 40):
        with pytest.raises(BrokenSourceError, match="damaged|broken"):
            decode_image(HEIC[:length], MAX_PIXELS)
