"""Images, packed ones, videos, arrays, archives and what a server answers."""

import functools
import gzip
import os
import shutil
import socket
import struct
import tarfile
import tempfile
import threading
import zlib
from pathlib import Path

import cv2
import numpy as np

from duet.utils.data.check.inspection import inspect
from duet.utils.data.fetch import download
from duet.utils.data.fetch.download import Item, unpack
from duet.utils.data.image.fingerprint import fingerprint_of
from duet.utils.data.records.layout import read_record
from duet.utils.data.records.record_images import read_record_images
from duet.utils.data.sources.image_sources import ImageFile
from duet.utils.data.sources.samples import decode
from duet.utils.data.sources.splits import scan_samples
from duet.utils.detect.media.finding import find_sources
from duet.utils.detect.media.image_file import decode_image
from duet.utils.errors import BrokenSourceError, UserError
from duet.utils.evaluation.coco.per_image import FILE, PerImage, read_per_image, write_per_image
from duet.utils.files.array_cache import VARIABLE, read_arrays, write_arrays
from duet.utils.image_limits import MAX_PIXELS
from tests.fuzz.campaign import MIB, Reader
from tests.unit.data.fetch.conftest import tarred, zipped
from tests.unit.data.image.test_kinds import HEIC
from tests.unit.data.image_files import KINDS, index_entry, index_record, record_file, turned
from tests.unit.detect.made import video_bytes

# Images.


def read_image(path: Path) -> object:
    """Scan an image and, if it is usable, decode it; as training and detect.py do."""
    path.with_suffix(".txt").write_bytes(b"0 0.5 0.5 0.25 0.25\n")
    report = scan_samples([ImageFile(path)], num_classes=3)
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


def pictures(kind: str) -> list[bytes]:
    """Return images of a kind: noise, grey, turned, and in each of its small forms."""
    noise = np.random.default_rng(0).integers(0, 256, (24, 32, 3), np.uint8)
    suffix = kind.lower()
    made = (
        []
        if kind in ("GIF", "AVIF")
        else [
            cv2.imencode(f".{suffix}", image)[1].tobytes()
            for image in (noise, np.full((40, 16), 128, np.uint8))
        ]
    )
    if kind in ("PNG", "WEBP", "TIFF"):
        made.append(turned(kind, 6))
    if kind == "JPEG":
        return made
    return made + [
        seed.content for name, seed in KINDS.items()
        if name.startswith(kind) and len(seed.content) < 8000
    ]  # fmt: skip


def with_png_checksums(content: bytes) -> bytes:
    """Put the checksum of each chunk right, as far as the chunks can be followed."""
    sealed, at = bytearray(content), 8
    while at + 12 <= len(content):
        (length,) = struct.unpack_from(">I", content, at)
        end = at + 8 + length
        if end + 4 > len(content):
            break
        struct.pack_into(">I", sealed, end, zlib.crc32(content[at + 4 : end]))
        at = end + 4
    return bytes(sealed)


# Decoding may cost what the largest accepted image needs; its size is read from the header.
image = functools.partial(Reader, memory_bytes=1024 * MIB, seconds=2.0)
JPEG_WORDS = (
    b"\xff\xd8", b"\xff\xd9", b"\xff\xda", b"\xff\xc0\x00\x11\x08", b"\xff\xc2", b"\xff\xc4",
    b"\xff\xdb", b"\xff\xe1\x00\x20Exif\x00\x00", b"\xff\xdd\x00\x04\x00\x01", b"\xff\xee",
)  # fmt: skip
PNG_WORDS = (b"PLTE", b"eXIf", b"iCCP", b"tRNS", b"zTXt", b"\x00\x00\x00\x0d")
BOX_WORDS = (b"ftyp", b"avif", b"meta", b"iloc", b"ispe", b"irot", b"imir", b"grid", b"clap")
WORDS_OF_KINDS = {
    "JPEG": JPEG_WORDS,
    "BMP": (b"BM", b"\x28\x00\x00\x00", b"\x01\x00\x20\x00"),
    "WEBP": (b"RIFF", b"VP8 ", b"VP8L", b"VP8X", b"ANIM", b"ALPH", b"EXIF"),
    "TIFF": (b"II*\x00", b"MM\x00*", b"\x00\x01\x03\x00\x01\x00\x00\x00"),
    "GIF": (b"GIF89a", b"!\xfe", b"!\xf9", b","),
    "AVIF": BOX_WORDS,
}


def record_seeds() -> list[bytes]:
    entries = [
        index_entry(b"images/a.jpg", labels=b"0 0.5 0.5 0.25 0.25\n"),
        index_entry("images/größe.png".encode(), num_labels=-1),
    ]
    return [record_file([pictures("JPEG")[0], pictures("JPEG")[0], index_record(entries)])]


def read_records(path: Path) -> object:
    images = read_record_images(path)
    for one in images:
        read_record(one.place)
    return scan_samples(images, num_classes=2)


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


IMAGES = {
    kind.lower(): image(
        read_image, functools.partial(pictures, kind), f"mutant.{kind.lower()}", words
    )
    for kind, words in WORDS_OF_KINDS.items()
} | {
    "png": image(
        read_image, lambda: pictures("PNG"), "mutant.png", PNG_WORDS, with_png_checksums
    ),
    "heic": image(read_image, lambda: [HEIC], "mutant.heic", (*BOX_WORDS, b"heic", b"mif1")),
    "checked-image": image(read_checked, lambda: pictures("JPEG"), "mutant.jpg", JPEG_WORDS),
    "records": image(
        read_records, record_seeds, "mutant.ffr", (b"duet-img", b"\xff\xd8"), with_record_checksums
    ),
}  # fmt: skip

# Videos.

VIDEO_PIXELS = 10_000  # three times those of the seeds
MAX_FRAMES = 200


def read_video(path: Path) -> object:
    """Read a video as detect.py does, until it has many frames."""
    (source,) = find_sources(str(path), VIDEO_PIXELS)
    shapes = []
    try:
        for frame in source.frames():
            shapes.append(frame.image.shape)
            if len(shapes) == MAX_FRAMES:
                break
    except BrokenSourceError as error:
        if not shapes:
            raise
        return str(error)
    return shapes


ATOMS = (
    b"moov", b"moof", b"mdat", b"trak", b"stbl", b"stsz", b"stts", b"stco", b"co64", b"elst",
    b"avcC", b"dref", b"url ", b"\x00\x00\x00\x01mdat", b"\x00\x00\x00\x00",
)  # fmt: skip
FRAGMENTS = {"movflags": "+frag_keyframe+empty_moov", "g": "4"}
VIDEOS = {
    # A decoder holds a few frames, and a damaged index asks for a table of its own size.
    f"video-{name}": Reader(
        read_video, lambda given=given, options=options: [video_bytes(*given, **options)],
        f"mutant.{suffix}", words, memory_bytes=256 * MIB, seconds=3.0,
    )
    for name, suffix, given, options, words in (
        ("mp4", "mp4", ("libx264", "mp4"), {}, ATOMS),
        ("fragments", "mp4", ("libx264", "mp4"), FRAGMENTS, ATOMS),
        ("matroska", "mkv", ("libx264", "matroska"), {}, (b"\x1aE\xdf\xa3", b"\x18S\x80g")),
        ("ts", "ts", ("mpeg2video", "mpegts"), {}, (b"G\x40\x00", b"\x00\x00\x01\xb3")),
        ("avi", "avi", ("mpeg4", "avi"), {}, (b"RIFF", b"LIST", b"idx1", b"strf")),
    )
}  # fmt: skip

# Arrays.

ARRAYS = {"a": np.arange(12).reshape(4, 3), "b": np.zeros((2, 4), np.float32)}
CACHE_WORDS = (
    b'"I64"', b'"F64"', b'"F32"', b'"U8"', b'"BF16"', b'"shape":[', b'"data_offsets":[',
    struct.pack("<q", -1), struct.pack("<q", 2**62), struct.pack("<q", 1), struct.pack("<f", 2.0),
)  # fmt: skip


def read_cached(path: Path) -> object:
    """Read a file as one of the cache."""
    folder = path.parent / "cache"
    os.environ[VARIABLE] = str(folder)
    (folder / "kind").mkdir(parents=True, exist_ok=True)
    (folder / "kind" / "name.safetensors").write_bytes(path.read_bytes())
    found = read_arrays("kind", "name", b"version")
    assert found is None or all((found[name] == ARRAYS[name]).all() for name in ARRAYS)
    return found


def kept_arrays() -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        os.environ[VARIABLE] = folder
        write_arrays("kind", "name", b"version", ARRAYS)
        return [Path(folder, "kind", "name.safetensors").read_bytes()]


def per_image() -> list[bytes]:
    """Return the content of a file of val.py with the outcomes of two detections."""
    numbers, outcome = np.arange(2), np.eye(10, 2, dtype=bool)
    found = PerImage(numbers, numbers, outcome, outcome, np.ones((2, 2), np.int32))
    with tempfile.TemporaryDirectory() as folder:
        write_per_image(Path(folder, FILE), found, ["a.jpg", "b.jpg"], ["a", "b"])
        return [Path(folder, FILE).read_bytes()]


# Archives and answers of servers.

FILES = {"a/1.txt": b"one", "a/b/2.txt": b"two" * 100, "c": b""}
HTTP = b"HTTP/1.1 "
ANSWERS = (
    HTTP + b"200 OK\r\nContent-Length: 5\r\nETag: \"1\"\r\n\r\nhello",
    HTTP + b"200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n",
    HTTP + b"206 Partial\r\nContent-Range: bytes 2-4/5\r\nContent-Length: 3\r\n\r\nllo",
    b"HTTP/1.0 302 Found\r\nLocation: /elsewhere\r\n\r\n",
    HTTP + b"503 Busy\r\nRetry-After: 3\r\n\r\n",
)  # fmt: skip
HTTP_WORDS = (
    b"\r\n\r\n", b"-1", b"99999999999999999999", b"*/*", b"Content-Encoding: gzip\r\n",
    b"ETag: W/\"x\"\r\n", b"Location: file:///etc/passwd\r\n", b"ffffffffffffffff\r\n", b" 301 ",
    b" 206 ", b" 416 ", b"x" * 2000,
)  # fmt: skip
ZIP_WORDS = (b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06", b"../", b"/")
TAR_WORDS = (b"ustar", b"../", b"/", b"7" * 11, b"path=", bytes(512))


def tars() -> list[bytes]:
    layouts = (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT)
    return [tarred({**FILES, "é" * 60: b""}, layout=layout) for layout in layouts]


def unpack_beside(path: Path) -> object:
    folder = path.with_name("unpacked")
    try:
        return unpack(path, path.name, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        assert not {"1.txt", "c", "a"}.intersection(os.listdir(path.parent))


def download_answer(path: Path) -> object:
    """Download what a server says that sends the file, whatever it is asked."""
    content, part = path.read_bytes(), path.with_name("target.part")
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=send, args=(server, content), daemon=True)
        thread.start()
        address = f"http://127.0.0.1:{server.getsockname()[1]}/a"
        download.TIMEOUT_S = 0.5
        part.write_bytes(b"he" * (len(content) % 2))
        try:
            return download.download(Item(address, "0" * 64, 5 - len(content) % 3, "target"), part)
        except UserError:
            return None
        finally:
            server.shutdown(socket.SHUT_RDWR)  # ends the waiting in `send`
            thread.join()
            part.unlink(missing_ok=True)


def send(server: socket.socket, content: bytes) -> None:
    try:
        while True:
            there, _ = server.accept()
            with there:
                there.recv(1 << 16)
                there.sendall(content)
    except OSError:
        return  # the server was closed, or who asked has heard enough


READERS = {
    **IMAGES,
    **VIDEOS,
    "kept-arrays": Reader(read_cached, kept_arrays, "mutant.safetensors", CACHE_WORDS),
    "per-image": Reader(
        read_per_image, per_image, FILE, (*ZIP_WORDS, b"|b1", b"<i8", b"|O", b"(2,)")
    ),
    "fetch-answer": Reader(download_answer, lambda: ANSWERS, "answer", HTTP_WORDS),
    "fetch-zip": Reader(unpack_beside, lambda: [zipped(FILES)], "a.zip", ZIP_WORDS),
    "fetch-tar": Reader(unpack_beside, tars, "a.tar", TAR_WORDS),
    "fetch-tgz": Reader(
        unpack_beside, lambda: list(map(gzip.compress, tars())), "a.tgz", (b"\x1f\x8b",)
    ),
}  # fmt: skip
