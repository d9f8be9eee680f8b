"""Lists of files to fetch, the answers of servers, and archives."""

from __future__ import annotations

import gzip
import io
import shutil
import socket
import tarfile
import threading
import zipfile
from dataclasses import replace
from pathlib import Path

from duet.utils.data.fetch import download
from duet.utils.data.fetch.download import FETCH_FOLDER, Item, find_list, unpack
from duet.utils.errors import UserError
from tests.fuzz.reader import Reader, as_text
from tests.fuzz.text_readers import YAML_TOKENS

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


READERS = {
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
