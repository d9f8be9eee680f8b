"""Exported files, videos and lists of sources, kept arrays, and what a server reads."""

from __future__ import annotations

import functools
import io
import os
import struct
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qsl

import numpy as np

from duet.utils.detect.media.finding import find_sources
from duet.utils.errors import BrokenSourceError, UserError
from duet.utils.evaluation.coco.per_image import FILE, PerImage, read_per_image, write_per_image
from duet.utils.export.metadata import metadata_as_json, metadata_in_zip, metadata_of_json
from duet.utils.export.opening import open_runtime
from duet.utils.export.openvino import MODEL, WEIGHTS, write_openvino
from duet.utils.files.array_cache import VARIABLE, read_arrays, write_arrays
from duet.utils.image_limits import MAX_PIXELS
from duet.utils.serve.requests import (
    RequestError,
    answer_kind,
    check_access,
    read_query,
    read_tokens,
)
from tests.fuzz.reader import MIB, Reader
from tests.fuzz.text_readers import JSON_TOKENS
from tests.onnx_files import METADATA, random_images, write_doubling
from tests.unit.detect.media.videos import video_bytes

XML_TOKENS = (
    b'type="Const"', b'type="Loop"', b'type="Result"', b'version="opset15"', b'offset="',
    b'size="99999999999999"', b'shape="1,3,99999999,99999999"', b'shape="-1,?,1..2"', b'<edge ',
    b'element_type="f16"', b'to-layer="0"', b"<dim>-1</dim>", b"<!DOCTYPE a [<!ENTITY a '&a;'>]>",
    b"&a;", b"<framework>", b"<rt_info>", b"\0",
)  # fmt: skip
# OpenVINO's own threads, kernels and plugin.
OPENVINO_BYTES = 512 * MIB


@functools.cache
def folder_contents() -> dict[str, bytes]:
    """The files of a small folder."""
    with tempfile.TemporaryDirectory() as folder:
        graph, made = write_doubling(Path(folder, "graph.onnx")), Path(folder, "made")
        write_openvino(graph, made, METADATA, None)
        return {name: (made / name).read_bytes() for name in (MODEL, WEIGHTS)}


def read_openvino(path: Path) -> object:
    """Run a folder whose model is a file."""
    with tempfile.TemporaryDirectory(suffix="_openvino_model") as folder:
        Path(folder, MODEL).write_bytes(path.read_bytes())
        Path(folder, WEIGHTS).write_bytes(folder_contents()[WEIGHTS])
        return open_runtime(folder, threads=1, is_trusted=True)(random_images())


def zip_seeds() -> list[bytes]:
    file = io.BytesIO(b"content")
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("a/extra/metadata.json", metadata_as_json(METADATA))
    return [file.getvalue()]


RUNTIME_READERS = {
    "openvino": Reader(
        read_openvino, lambda: [folder_contents()[MODEL]], MODEL, XML_TOKENS,
        memory_bytes=OPENVINO_BYTES, seconds=5.0,
    ),
    "exported-metadata": Reader(
        lambda path: metadata_of_json(path.read_bytes()),
        lambda: [metadata_as_json(METADATA).encode()], "metadata.json", JSON_TOKENS,
    ),
    "exported-zip": Reader(
        lambda path: metadata_in_zip(path.read_bytes(), "/extra/metadata.json"), zip_seeds,
        "a.torchscript", (b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"),
    ),
}  # fmt: skip


VIDEO_PIXELS = 10_000  # three times those of the seeds
MAX_FRAMES = 200


def read_source(path: Path) -> object:
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


def read_list(path: Path) -> object:
    return [source.name for source in find_sources(str(path), MAX_PIXELS)]


def videos(codec: str, form: str, **options: str) -> Callable[[], list[bytes]]:
    return lambda: [video_bytes(codec, form, **options)]


def video_reader(
    suffix: str, seeds: Callable[[], list[bytes]], tokens: tuple[bytes, ...]
) -> Reader:
    # A decoder holds a few frames, and a damaged index asks for a table of its own size.
    return Reader(
        read_source, seeds, f"mutant.{suffix}", tokens, memory_bytes=256 * MIB, seconds=3.0
    )


BOXES = (
    b"moov", b"moof", b"mdat", b"trak", b"stbl", b"stsz", b"stts", b"stco", b"co64", b"elst",
    b"avcC", b"dref", b"url ", b"\x00\x00\x00\x01mdat", b"\x00\x00\x00\x00",
)  # fmt: skip
MEDIA_READERS = {
    "video-mp4": video_reader("mp4", videos("libx264", "mp4"), BOXES),
    "video-fragments": video_reader(
        "mp4", videos("libx264", "mp4", movflags="+frag_keyframe+empty_moov", g="4"), BOXES
    ),
    "video-matroska": video_reader(
        "mkv",
        videos("libx264", "matroska"),
        (b"\x1aE\xdf\xa3", b"\x18S\x80g", b"\x1fC\xb6u", b"\xec"),
    ),
    "video-ts": video_reader(
        "ts", videos("mpeg2video", "mpegts"), (b"G\x40\x00", b"\x00\x00\x01\xb3")
    ),
    "video-avi": video_reader("avi", videos("mpeg4", "avi"), (b"RIFF", b"LIST", b"idx1", b"strf")),
    "source-list": Reader(
        read_list, lambda: [b"a.jpg\nb/c.png\n/d.mp4\n", b"\xef\xbb\xbfa.jpg\r\n"], "mutant.txt",
        (b".jpg\n", b"://", b"rtsp://h\n", b"screen", b"0\n"),
    ),
    "stream-list": Reader(
        read_list, lambda: [b"rtsp://a:b@c/d\n0\n", b"udp://@:1\n"], "mutant.streams",
        (b"rtsp://", b"http://", b"file://", b"screen 9", b"@", b"0\n"),
    ),
}  # fmt: skip


ARRAYS = {"a": np.arange(12).reshape(4, 3), "b": np.zeros((2, 4), np.float32)}
CACHE_TOKENS = (
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


def written() -> list[bytes]:
    """Return the content of a file that keeps arrays."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ[VARIABLE] = folder
        write_arrays("kind", "name", b"version", ARRAYS)
        return [Path(folder, "kind", "name.safetensors").read_bytes()]


def outcomes() -> list[bytes]:
    """Return the content of a file of val.py with the outcomes of two detections."""
    numbers, outcome = np.arange(2), np.eye(10, 2, dtype=bool)
    found = PerImage(numbers, numbers, outcome, outcome, np.ones((2, 2), np.int32))
    with tempfile.TemporaryDirectory() as folder:
        write_per_image(Path(folder, FILE), found, ["a.jpg", "b.jpg"], ["a", "b"])
        return [Path(folder, FILE).read_bytes()]


CACHE_READERS = {
    "kept-arrays": Reader(
        read_cached, written, "mutant.safetensors", CACHE_TOKENS, memory_bytes=64 * MIB
    ),
    "per-image": Reader(
        read_per_image, outcomes, FILE, memory_bytes=64 * MIB,
        tokens=(b"PK\x03\x04", b"PK\x01\x02", b"|b1", b"<i8", b"|O", b"(2,)"),
    ),
}  # fmt: skip


def read_words(path: Path) -> None:
    """Read the first line as a query, the second as a Host, the rest as an Accept header."""
    query, _, rest = path.read_bytes().decode("latin-1").partition("\n")
    host, _, accept = rest.partition("\n")
    try:
        read_query(parse_qsl(query, keep_blank_values=True))
        answer_kind(accept)
        check_access("/v1/detect", {"host": host, "origin": f"http://{host}"}, (), "127.0.0.1")
    except RequestError as error:
        raise UserError(str(error)) from error


SERVE_READERS = {
    "serve-query": Reader(
        read_words,
        lambda: [b"model=a&conf=0.25&iou=0.45&max_det=9&classes=0,2&agnostic=1\nlocalhost:8000\n"
                 b"image/png;q=0.9"],
        "query",
        (b"%ff", b"%00", b"&", b"=", b"conf=", b"nan", b"inf", b"1e999", b",", b";q=", b"*/*"),
    ),
    "serve-tokens": Reader(
        read_tokens,
        lambda: [b"0123456789abcdef\n0123456789abcdef-ABC_.~+/==\n"],
        "tokens",
        (b"\n", b"\r", b"\0", b"=", b"\x1b[31m", b"\xe2\x80\xae", b"\xc2\x85"),
    ),
}  # fmt: skip

READERS = {**RUNTIME_READERS, **MEDIA_READERS, **CACHE_READERS, **SERVE_READERS}
