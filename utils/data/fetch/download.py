"""A list of files to fetch, their download and unpacking: the only code that opens a connection.

A list is a YAML with the URL, size, hash and path of each file. Partial downloads are kept in
NAME.part, and resumed if the list has size and hash; the hash verifies the whole file. Archives are
unpacked with the standard library's safe extraction, within a size limit.
"""

import filecmp
import gzip
import hashlib
import http.client
import lzma
import os
import re
import shutil
import struct
import tarfile
import urllib.error
import urllib.request
import zipfile
import zlib
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO, NamedTuple

from duet.utils.errors import UserError, brief, os_fault
from duet.utils.files.regular import open_regular
from duet.utils.files.yaml_files import read_yaml
from duet.utils.progress import Progress
from duet.utils.project import FETCH_FOLDER, how_to_fetch, list_names
from duet.utils.text import printable

MAX_BYTES = 1 << 40  # per file
_PART = r"[^\\/.:\x00-\x1f\x7f][^\\/:\x00-\x1f\x7f]{0,199}"  # part of a path
_PLACE = rf"{_PART}(/{_PART}){{0,9}}", "a path below --out, without '..', ':' or hidden folders,"
_TEXTS = {  # pattern of the whole value, and its description
    "url": (r"https?://[\w.-]+(:\d+)?/[!-~]{0,2000}", "https://SERVER/FILE, or http with a hash,"),
    "sha256": (r"[0-9a-fA-F]{64}", "null, or 64 hexadecimal digits in quotes,"),
    "path": _PLACE,
    "unpack": (rf"\.|{_PLACE[0]}", f"'.', or {_PLACE[1]}"),
}
PART = ".part"  # suffix of a partial download
SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz")
MAX_EXPANSION = 100  # unpacked bytes for each byte of an archive
SMALL_BYTES = 1 << 24  # that any archive may expand to
_DAMAGES = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error,
            EOFError, RuntimeError, ValueError, LookupError, OverflowError)  # fmt: skip
TIMEOUT_S = 30.0  # without a byte
_BLOCK_BYTES = 1 << 20
_CUTS = (http.client.HTTPException, urllib.error.URLError, ConnectionError, TimeoutError,
         ValueError, OverflowError)  # fmt: skip  # the last two of broken lengths


class Item(NamedTuple):
    url: str  # https, or http where there is a hash
    sha256: str | None  # None: not known yet
    size: int | None  # bytes; None: as reported by the server
    path: str  # below --out
    unpack: str | None = None  # folder below --out for its content; None: it stays as it is

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


class FetchList(NamedTuple):
    about: str  # description and licence
    then: str  # the next step; may be empty
    items: tuple[Item, ...]


def find_list(argument: str) -> FetchList:
    """Read a list by its path, or by its name in data/fetch; UserError names an invalid value."""
    path, known = Path(argument), f"a list is a YAML file, or one of: {', '.join(list_names())}"
    if not path.is_file() and not path.suffix:  # a folder may have the name of its list
        path = FETCH_FOLDER / f"{path.name}.yaml"
    if not path.exists():
        raise UserError(f"LIST {argument}: no such list; {how_to_fetch(argument) or known}")
    document = read_yaml("LIST", path, known)
    about, then, files = (document.get(key, "") for key in ("about", "then", "files"))
    if not (isinstance(about, str) and isinstance(then, str) and isinstance(files, list) and files):
        raise UserError(f"{path}: 'about' and 'then' must be text, and 'files' a list of files")
    try:
        return FetchList(about, then, tuple(map(_read_item, files)))
    except UserError as error:
        raise UserError(f"{path}: {error}") from error


def _read_item(file: object) -> Item:
    if not isinstance(file, dict) or {*file, "unpack"} != set(Item._fields):
        raise UserError(f"a file is {brief(file)}; required keys: {', '.join(Item._fields)}")
    for key, (pattern, needed) in _TEXTS.items():
        value = file.get(key)
        may_be_null = value is None and key in ("sha256", "unpack")
        if not may_be_null and not (isinstance(value, str) and re.fullmatch(pattern, value, re.A)):
            raise UserError(f"'{key}' is {brief(value)}; accepted: {needed}")
    item = Item(**file)
    if item.size is not None and (type(item.size) is not int or not 0 < item.size <= MAX_BYTES):
        raise UserError(f"'size' is {brief(item.size)}; accepted: null, or 1 to {MAX_BYTES:,}")
    if item.sha256 is None and not item.url.startswith("https:"):
        raise UserError(f"{item.url} has no 'sha256', which is required for a URL without https")
    if item.unpack is not None and not item.path.endswith(SUFFIXES):
        raise UserError(f"'path' is {item.path}; can unpack only {', '.join(SUFFIXES)}")
    return item._replace(sha256=item.sha256 and item.sha256.lower())


def download(item: Item, part: Path) -> str:
    """Fetch a file into `part`, or the rest of it; return its SHA-256.

    Raises:
        UserError: it is not there, its bytes differ from the list, or the connection failed.
            The partial file stays, unless it is wrong.
        OSError: it cannot be written.
    """
    try:
        with open(part, "ab") as file:
            _fetch_rest(item, file)
    except UserError:
        raise
    except _CUTS as error:
        kept = "the partial file is kept: run again to continue" if part.stat().st_size else ""
        is_http = isinstance(error, urllib.error.HTTPError)
        advice = "check the network; behind a proxy set https_proxy=http://HOST:PORT"
        advice = "correct the URL in the list" if is_http else advice
        by_hand = f"or download it by other means and put it at {str(part).removesuffix(PART)}"
        steps = "; ".join(filter(None, (kept, advice, by_hand)))
        raise UserError(f"{item.url}: {_reason(error)}; {steps}") from error
    finally:
        if part.exists() and not part.stat().st_size:
            part.unlink()
    digest = hash_of(part)
    if item.sha256 not in (None, digest):
        part.unlink()
        raise UserError(
            f"{item.url}: its SHA-256 is {digest}, but the list has {item.sha256}; it was "
            "removed. Run again if it continued an earlier download; otherwise the file on the "
            "server was replaced or damaged, or the list is wrong"
        )
    return digest


def _reason(error: Exception) -> str:
    """Return the system's error that a URLError wraps; an HTTPError is one, with its code."""
    is_http = isinstance(error, urllib.error.HTTPError)
    cause = error if is_http else getattr(error, "reason", error)
    return printable(f"{getattr(cause, 'strerror', None) or cause!s:.200}")


def hash_of(path: Path) -> str:
    digest = hashlib.sha256()
    with open_regular(path) as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def _fetch_rest(item: Item, file: BinaryIO) -> None:
    start = file.tell() if item.sha256 and item.size else 0
    if start and start >= (item.size or 0):
        return  # whole already; the hash judges it
    headers = {"User-Agent": "duet-fetch"} | ({"Range": f"bytes={start}-"} if start else {})
    request = urllib.request.Request(item.url, headers=headers)
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
        if item.sha256 is None and not answer.url.startswith("https:"):
            text = f"redirects to {answer.url}, which needs a 'sha256' in the list"
            raise UserError(f"{item.url}: {text}")
        is_rest = answer.headers.get("Content-Range", "").startswith(f"bytes {start}-")
        file.truncate(start if is_rest else 0)
        _append(item, answer, file)


def _append(item: Item, answer: http.client.HTTPResponse, file: BinaryIO) -> None:
    done = file.seek(0, 2)
    size = item.size or (None if answer.length is None else done + answer.length)
    if size is None and item.sha256 is None:
        text = "neither the list nor the server gives its size; write it into the list"
        raise UserError(f"{item.url}: {text}")
    mib = None if size is None else -(-size // _BLOCK_BYTES)
    with Progress(mib, f"fetching {item.name}", "MiB", done // _BLOCK_BYTES) as progress:
        while block := answer.read(_BLOCK_BYTES):
            done += file.write(block)
            progress.update()
            if done > (size or MAX_BYTES):
                file.truncate(0)
                text = f"the server sends more than {size or MAX_BYTES:,} bytes; correct the list"
                raise UserError(f"{item.url}: {text}")
    if size is not None and done < size:
        raise ConnectionError(f"the connection ended after {done:,} of {size:,} bytes")


def unpack(archive: Path, name: str, folder: Path) -> int:
    """Unpack an archive into a folder, beside its files; return the number of files.

    Args:
        name: its suffix gives the kind of archive.

    UserError: it is damaged, expands to too much, has links, devices or names that lead out of the
    folder, or would replace another file. The folder is then as before.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with open_regular(archive) as file, TemporaryDirectory(prefix=".", dir=folder) as working:
            if name.endswith(".zip"):
                _unpack_zip(file, working)
            else:
                _unpack_tar(file, working, is_compressed=not name.endswith(".tar"))
            return _move(Path(working), folder)
    except UserError as error:
        raise UserError(f"{archive}: {error}") from error
    except _DAMAGES as error:
        text = f"damaged, or contains unsafe paths: {brief(str(error))}"
        raise UserError(f"{archive}: {text}") from error
    except OSError as error:
        raise UserError(
            f"{archive}: cannot be unpacked into {folder}: {os_fault(error)}"
        ) from error


def _unpack_zip(file: BinaryIO, working: str) -> None:
    with zipfile.ZipFile(file) as archive:
        _require_bound(sum(entry.file_size for entry in archive.infolist()), file)
        archive.extractall(working)


def _unpack_tar(file: BinaryIO, working: str, is_compressed: bool) -> None:
    if is_compressed:
        # tarfile reads headers of any length, so limit the stream first.
        with gzip.GzipFile(fileobj=file) as stream:
            while stream.read(1 << 20):
                _require_bound(stream.tell(), file)
        file.seek(0)
    with tarfile.open(fileobj=file, mode="r:gz" if is_compressed else "r:") as archive:
        for member in archive:
            if not (member.isreg() or member.isdir()) or member.issparse():
                raise UserError(f"{brief(member.name)} is a link or a device")
            place = Path(working, member.name)
            if ".." in place.parts or not place.is_relative_to(working):
                raise UserError(f"contains unsafe paths: {brief(member.name)}")
            # Not `extract(filter=...)`, which Python has from 3.10.12 and 3.11.4 on only.
            (place if member.isdir() else place.parent).mkdir(parents=True, exist_ok=True)
            if content := archive.extractfile(member):
                with content, place.open("wb") as unpacked:
                    shutil.copyfileobj(content, unpacked)


def _require_bound(num_bytes: int, file: BinaryIO) -> None:
    if num_bytes > SMALL_BYTES + MAX_EXPANSION * os.fstat(file.fileno()).st_size:
        raise UserError(f"it expands to over {MAX_EXPANSION} times its size")


def _move(source: Path, folder: Path) -> int:
    """Move all files of a folder into another one; existing files must be equal."""
    files = [path for path in source.rglob("*") if path.is_file()]
    places = [folder / path.relative_to(source) for path in files]
    for path, place in zip(files, places, strict=True):
        there = next(one for one in (place, *place.parents) if os.path.lexists(one))
        is_same = place.is_file() and filecmp.cmp(path, place, shallow=False)
        is_free = there.is_dir() if there != place else is_same
        if not is_free:
            raise UserError(f"{there} is there already, with another content; move it away")
    for path, place in zip(files, places, strict=True):
        place.parent.mkdir(parents=True, exist_ok=True)
        os.replace(path, place)
    return len(files)
