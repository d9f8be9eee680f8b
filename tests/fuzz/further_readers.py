"""Exported files, videos, lists of sources, kept arrays, and what a server reads or is sent."""

import functools
import gzip
import io
import os
import shutil
import socket
import struct
import tarfile
import tempfile
import threading
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qsl

import numpy as np

from duet.utils.data.fetch import download
from duet.utils.data.fetch.download import FETCH_FOLDER, Item, find_list, unpack
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
from tests.fuzz.reader import MIB, Reader, as_text
from tests.fuzz.text_readers import JSON_TOKENS, YAML_TOKENS
from tests.onnx_files import METADATA, random_images, write_doubling
from tests.unit.detect.made import video_bytes

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


FILES = {"a/1.txt": b"one", "a/b/2.txt": b"two" * 100, "c": b""}
ANSWERS = (
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nETag: \"1\"\r\n\r\nhello",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n",
    b"HTTP/1.1 206 Partial\r\nContent-Range: bytes 2-4/5\r\nContent-Length: 3\r\n\r\nllo",
    b"HTTP/1.0 302 Found\r\nLocation: /elsewhere\r\n\r\n",
    b"HTTP/1.1 503 Busy\r\nRetry-After: 3\r\n\r\n",
)  # fmt: skip
HTTP_TOKENS = (
    b"\r\n", b"\r\n\r\n", b"HTTP/1.1 ", b"Content-Length: ", b"-1", b"99999999999999999999",
    b"Content-Range: bytes ", b"*/*", b"Content-Encoding: gzip\r\n", b"ETag: W/\"x\"\r\n",
    b"Location: file:///etc/passwd\r\n", b"Transfer-Encoding: chunked\r\n", b"ffffffffffffffff\r\n",
    b" 301 ", b" 206 ", b" 416 ", b"x" * 2000,
)  # fmt: skip


def zipped() -> list[bytes]:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in FILES.items():
            archive.writestr(name, content)
    return [buffer.getvalue()]


def tarred() -> list[bytes]:
    found = []
    for layout in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT):
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=layout) as archive:
            for name, content in {**FILES, "é" * 60: b""}.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
        found.append(buffer.getvalue())
    return found


def unpack_beside(path: Path) -> object:
    folder = path.with_name("unpacked")
    try:
        return unpack(path, path.name, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        outside = [x.name for x in path.parent.iterdir() if x.name not in (path.name, "found.txt")]
        assert not [name for name in outside if name in ("1.txt", "c", "a")]


def download_answer(path: Path) -> object:
    """Download what a server says that sends the file, whatever it is asked."""
    content, part = path.read_bytes(), path.with_name("target.part")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        thread = threading.Thread(target=send, args=(server, content), daemon=True)
        thread.start()
        item = Item(f"http://127.0.0.1:{port}/a", "0" * 64, 5 - len(content) % 3, "target")
        download.TIMEOUT_S = 0.5
        part.write_bytes(b"he" * (len(content) % 2))
        try:
            return download.download(item, part)
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


FETCH_READERS = {
    "fetch-list": replace(
        Reader(
            lambda path: find_list(str(path)),
            lambda: [path.read_bytes() for path in sorted(FETCH_FOLDER.glob("*.yaml"))],
            "list.yaml",
            (*YAML_TOKENS, b"url: file:///", b"../", b"sha256: null", b"unpack: ", b"1e9"),
        ),
        seal=as_text,
    ),
    "fetch-answer": Reader(download_answer, lambda: list(ANSWERS), "answer", HTTP_TOKENS),
    "fetch-zip": Reader(
        unpack_beside, zipped, "a.zip", (b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06", b"../", b"/")
    ),
    "fetch-tar": Reader(
        unpack_beside, tarred, "a.tar", (b"ustar", b"../", b"/", b"7" * 11, b"path=", bytes(512))
    ),
    "fetch-tgz": Reader(
        unpack_beside, lambda: list(map(gzip.compress, tarred())), "a.tgz", (b"\x1f\x8b",)
    ),
}  # fmt: skip

READERS = {
    **RUNTIME_READERS,
    **MEDIA_READERS,
    **CACHE_READERS,
    **SERVE_READERS,
    **FETCH_READERS,
}
