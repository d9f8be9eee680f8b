"""Image files of each kind, and packed ones."""

import io
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
from PIL import Image

from duet.utils.data.check.inspection import inspect
from duet.utils.data.image.fingerprint import fingerprint_of
from duet.utils.data.records.layout import read_record
from duet.utils.data.records.record_images import read_record_images
from duet.utils.data.sources.image_sources import ImageFile
from duet.utils.data.sources.samples import decode
from duet.utils.data.sources.splits import scan_samples
from duet.utils.detect.media.image_file import decode_image
from duet.utils.errors import UserError
from duet.utils.image_limits import MAX_PIXELS
from tests.fuzz.reader import MIB, Reader
from tests.unit.data.image.test_kinds import HEIC
from tests.unit.data.image_files import KINDS, index_entry, index_record, record_file, turned

# Decoding may cost what the largest accepted image needs; its size is read from the header.
DECODED_BYTES = 1024 * MIB
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
PNG_TOKENS = (
    b"IHDR", b"PLTE", b"IDAT", b"IEND", b"acTL", b"fcTL", b"fdAT", b"eXIf", b"iCCP", b"tRNS",
    b"zTXt", b"\x00\x00\x00\x0d",
)  # fmt: skip
JPEG_TOKENS = (
    b"\xff\xd8", b"\xff\xd9", b"\xff\xda", b"\xff\xc0\x00\x11\x08", b"\xff\xc2", b"\xff\xc4",
    b"\xff\xdb", b"\xff\xe1\x00\x20Exif\x00\x00", b"\xff\xdd\x00\x04\x00\x01", b"\xff\xee",
)  # fmt: skip


def read_one(path: Path) -> object:
    """Scan an image and, if it is usable, decode it; as training and detect.py do."""
    path.with_suffix(".txt").write_bytes(b"0 0.5 0.5 0.25 0.25\n")
    report = scan_samples([path], num_classes=3)
    fingerprint_of(np.frombuffer(path.read_bytes(), np.uint8))
    images = [decode(sample) for sample in report.samples]
    seen = decode_image(path.read_bytes(), MAX_PIXELS)
    assert (seen[..., ::-1] == images[0]).all()
    return images


def read_checked(path: Path) -> object:
    """Look at an image as the check of a dataset does: what is not used has a finding."""
    path.with_suffix(".txt").write_bytes(b"0 0.5 0.5 0.25 0.25\n")
    image, found = inspect("train", ImageFile(path), 3)
    if not image.is_used:
        assert found, "left out without a reason"
        raise UserError("; ".join(finding.text for finding in found))
    return image


def read_records(path: Path) -> object:
    images = read_record_images(path)
    for image in images:
        read_record(image.place)
    return scan_samples(images, num_classes=2)


def encoded(suffix: str) -> Callable[[], list[bytes]]:
    """Return a function that returns two images of a kind, noise and grey, and its other forms."""

    def make() -> list[bytes]:
        noise = np.random.default_rng(0).integers(0, 256, (24, 32, 3), np.uint8)
        images = (noise, np.full((40, 16), 128, np.uint8))
        return [cv2.imencode(suffix, image)[1].tobytes() for image in images] + forms(suffix)

    return make


def forms(suffix: str) -> list[bytes]:
    """Return images of a kind with alpha, more bits, a turn or several frames."""
    named = {".png": "PNG ", ".webp": "WEBP ", ".tiff": "TIFF ", ".bmp": "BMP "}.get(suffix, "none")
    others = [kind.content for name, kind in KINDS.items() if name.startswith(named)]
    exif = [turned(named.strip(), 6)] if suffix in (".png", ".webp", ".tiff") else []
    return [content for content in others + exif if len(content) < 8000]


def pictures(kind: str) -> Callable[[], list[bytes]]:
    """Return a function that returns images of a kind that Pillow writes, one of them animated."""

    def make() -> list[bytes]:
        noise = np.random.default_rng(0).integers(0, 256, (24, 32, 3), np.uint8)
        images = [Image.fromarray(noise), Image.new("RGB", (40, 16), "gray")]
        files = [io.BytesIO() for _ in range(3)]
        for image, file in zip(images, files, strict=False):
            image.save(file, kind)
        images[0].save(files[2], kind, save_all=True, append_images=[images[0].rotate(90)])
        others = [seed.content for name, seed in KINDS.items() if name.startswith(kind)]
        return [*(file.getvalue() for file in files), *others]

    return make


def animated_png() -> list[bytes]:
    """Return an animated PNG of two frames beside the plain ones."""
    raw = b"".join(b"\x00" + bytes(range(48)) for _ in range(16))
    frame = struct.pack(">IIIIHHBB", 16, 16, 0, 0, 1, 10, 0, 0)
    chunks = [
        (b"IHDR", struct.pack(">IIBBBBB", 16, 16, 8, 2, 0, 0, 0)),
        (b"acTL", struct.pack(">II", 2, 0)),
        (b"fcTL", struct.pack(">I", 0) + frame),
        (b"IDAT", zlib.compress(raw)),
        (b"fcTL", struct.pack(">I", 1) + frame),
        (b"fdAT", struct.pack(">I", 2) + zlib.compress(raw)),
        (b"IEND", b""),
    ]
    return [*encoded(".png")(), PNG_SIGNATURE + b"".join(png_chunk(*chunk) for chunk in chunks)]


def png_chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def with_png_checksums(content: bytes) -> bytes:
    """Put the checksum of each chunk right, as far as the chunks can be followed."""
    sealed, at = bytearray(content), len(PNG_SIGNATURE)
    while at + 12 <= len(content):
        (length,) = struct.unpack_from(">I", content, at)
        end = at + 8 + length
        if end + 4 > len(content):
            break
        struct.pack_into(">I", sealed, end, zlib.crc32(content[at + 4 : end]))
        at = end + 4
    return bytes(sealed)


ENTRIES = [
    index_entry(b"images/a.jpg", labels=b"0 0.5 0.5 0.25 0.25\n"),
    index_entry("images/größe.png".encode(), num_labels=-1),
]


def record_seeds() -> list[bytes]:
    image = encoded(".jpg")()[0]
    return [record_file([image, image, index_record(ENTRIES)])]


def with_record_checksums(content: bytes) -> bytes:
    """Put the checksums of header and records right, as far as they can be followed."""
    if len(content) < 12:
        return content
    sealed = bytearray(content)
    (number,) = struct.unpack_from("<q", content, 4)
    if not 0 <= number <= 99 or 12 + 12 * number > len(content):
        return content
    bounds = [*struct.unpack_from(f"<{number}q", content, 12 + 4 * number), len(content)]
    for index, (start, end) in enumerate(zip(bounds, bounds[1:], strict=False)):
        if 0 <= start <= end <= len(content):
            struct.pack_into("<I", sealed, 12 + 4 * index, zlib.crc32(content[start:end]))
    struct.pack_into("<I", sealed, 0, zlib.crc32(sealed[4 : 12 + 12 * number]))
    return bytes(sealed)


def image_reader(suffix: str, tokens: tuple[bytes, ...] = ()) -> Reader:
    return Reader(read_one, encoded(suffix), f"mutant{suffix}", tokens, memory_bytes=DECODED_BYTES)


READERS = {
    "jpeg": image_reader(".jpg", JPEG_TOKENS),
    "checked-image": Reader(
        read_checked, encoded(".jpg"), "mutant.jpg", JPEG_TOKENS, memory_bytes=DECODED_BYTES
    ),
    "png": Reader(
        read_one, animated_png, "mutant.png", PNG_TOKENS, with_png_checksums, DECODED_BYTES
    ),
    "bmp": image_reader(".bmp", (b"BM", b"\x28\x00\x00\x00", b"\x01\x00\x20\x00")),
    "webp": image_reader(".webp", (b"RIFF", b"VP8 ", b"VP8L", b"VP8X", b"ANIM", b"ALPH", b"EXIF")),
    "tiff": image_reader(".tiff", (b"II*\x00", b"MM\x00*", b"\x00\x01\x03\x00\x01\x00\x00\x00")),
    "gif": Reader(read_one, pictures("GIF"), "mutant.gif", (b"GIF89a", b"!\xfe", b"!\xf9", b","),
                  memory_bytes=DECODED_BYTES, seconds=2.0),
    "avif": Reader(read_one, pictures("AVIF"), "mutant.avif",
                   (b"ftyp", b"avif", b"meta", b"iloc", b"ispe", b"irot", b"imir", b"grid"),
                   memory_bytes=DECODED_BYTES, seconds=2.0),
    "heic": Reader(read_one, lambda: [HEIC], "mutant.heic",
                   (b"ftyp", b"heic", b"mif1", b"meta", b"iloc", b"ispe", b"irot", b"clap"),
                   memory_bytes=DECODED_BYTES, seconds=2.0),
    "records": Reader(
        read_records, record_seeds, "mutant.ffr", (b"duet-img", b"\xff\xd8"), with_record_checksums,
        memory_bytes=DECODED_BYTES,
    ),
}  # fmt: skip
