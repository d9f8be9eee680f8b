"""What is in an archive, as files in a folder: names, kinds and sizes are checked before.

Before: `fetching.py` has the archive. After: whoever reads the dataset. The files are written into
a folder of their own first, and then moved to where they belong.
"""

from __future__ import annotations

import filecmp
import gzip
import os
import shutil
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO, NamedTuple

from backend.words import count
from utils.errors import UserError, brief
from utils.files.regular import open_regular

SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz")
MAX_FILES = 2_000_000
MAX_EXPANSION = 100  # unpacked bytes for each byte of an archive
_SMALL_BYTES = 1 << 24  # to which any archive may expand
_MAX_DEPTH = 32
_BLOCK_BYTES = 1 << 20
_READ_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_DAMAGES = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    OverflowError,
)


class _Member(NamedTuple):
    name: str
    size: int  # bytes; of a folder 0
    is_folder: bool
    open: Callable[[], IO[bytes]]


class Unpacked(NamedTuple):
    """What was in an archive."""

    num_files: int
    first: str  # the folder of the first file, below that into which it was unpacked


def unpack(archive: Path, folder: Path) -> Unpacked:
    """Unpack an archive into a folder, beside what is there already.

    Raises:
        UserError: it is damaged, has something that is no plain file of a harmless name, or would
            take the place of another file; or the disk is full. The folder is then as before, but
            for files of the archive that had been moved when another was found in the way.
    """
    folder.mkdir(parents=True, exist_ok=True)
    working = folder / f".{archive.name}.unpacking"
    _remove(working)
    try:
        with open_regular(archive) as file, _members_of(archive, file) as members:
            unpacked = _write(members, working, _bound(file))
        _move(working, folder)
    except _DAMAGES as error:
        if isinstance(error, UserError):
            raise UserError(f"{archive}: {error}") from error
        raise UserError(f"{archive}: a damaged archive: {brief(str(error))}") from error
    except OSError as error:
        reason = f"{error.strerror or error}"
        raise UserError(f"{archive}: cannot be unpacked into {folder}: {reason}") from error
    finally:
        _remove(working)
    return unpacked


def _remove(working: Path) -> None:
    if working.is_symlink():
        raise UserError(f"{working}: a link, where files are to be unpacked; remove it")
    shutil.rmtree(working, ignore_errors=True)


def _bound(file: BinaryIO) -> int:
    """Return the number of bytes to which an archive may expand."""
    return _SMALL_BYTES + MAX_EXPANSION * os.fstat(file.fileno()).st_size


@contextmanager
def _members_of(archive: Path, file: BinaryIO) -> Iterator[Iterator[_Member]]:
    if archive.name.endswith(".zip"):
        with zipfile.ZipFile(file) as found:
            yield _of_zip(found)
        return
    with file if archive.name.endswith(".tar") else gzip.GzipFile(fileobj=file) as plain:
        bounded: Any = _BoundedReads(plain, _bound(file))
        with tarfile.open(fileobj=bounded, mode="r:") as packed:
            yield _of_tar(packed)


class _BoundedReads:
    """A file for tarfile, which would read headers of any length, and seek by reading."""

    def __init__(self, file: BinaryIO | gzip.GzipFile, bound: int):
        self._file, self._left = file, bound
        self.tell = file.tell

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= _SMALL_BYTES:
            raise UserError(f"a header of {size:,} bytes")
        self._spend(size)
        return self._file.read(size)

    def seek(self, position: int) -> int:
        self._spend(max(0, position - self._file.tell()))
        return self._file.seek(position)

    def _spend(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise UserError(f"it expands to over {MAX_EXPANSION} times its size")


def _of_zip(archive: zipfile.ZipFile) -> Iterator[_Member]:
    for entry in archive.infolist():
        kind = stat.S_IFMT(entry.external_attr >> 16)
        if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise UserError(f"{brief(entry.filename)} is a link or a device")
        if entry.flag_bits & 1 or entry.compress_type not in _READ_COMPRESSIONS:
            raise UserError(f"{brief(entry.filename)} is encrypted, or compressed in a rare way")
        yield _Member(
            entry.filename.removesuffix("/"), entry.file_size, entry.filename.endswith("/"),
            lambda entry=entry: archive.open(entry),  # type: ignore[misc]
        )  # fmt: skip


def _of_tar(archive: tarfile.TarFile) -> Iterator[_Member]:
    while (entry := archive.next()) is not None:
        archive.members = []  # type: ignore[attr-defined]  # it would keep them all
        if not (entry.isreg() or entry.isdir()) or entry.issparse():
            raise UserError(f"{brief(entry.name)} is a link or a device")
        yield _Member(
            entry.name.removeprefix("./"), entry.size, entry.isdir(),
            lambda entry=entry: archive.extractfile(entry),  # type: ignore[misc, arg-type]
        )  # fmt: skip


def _write(members: Iterator[_Member], working: Path, bound: int) -> Unpacked:
    """Write the members into a new folder."""
    working.mkdir()
    num_files = num_bytes = 0
    first = working
    for number, member in enumerate(members):
        num_bytes += member.size
        if number == MAX_FILES:
            raise UserError(f"more than {count(MAX_FILES, 'member')}")
        if num_bytes > bound:
            raise UserError(f"it expands to over {MAX_EXPANSION} times its size")
        path = working.joinpath(*_parts_of(member.name))
        if member.is_folder:
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            _write_file(member, path)
            first = first if num_files else path.parent
            num_files += 1
    return Unpacked(num_files, first.relative_to(working).as_posix())


def _parts_of(name: str) -> list[str]:
    """Return the folders and the name of a member; raise UserError for one that leads elsewhere."""
    parts = name.split("/")
    harmless = not any(part in ("", "..") or "\\" in part or "\0" in part for part in parts)
    if name not in ("", ".") and (not harmless or ":" in parts[0] or len(parts) > _MAX_DEPTH):
        raise UserError(f"the name {brief(name)} leads out of the folder, or names no file")
    return [part for part in parts if part not in ("", ".")]


def _write_file(member: _Member, path: Path) -> None:
    try:
        with open(path, "xb") as target, closing(member.open()) as source:
            _copy(member, source, target)
    except FileExistsError:
        raise UserError(f"{brief(member.name)} is there twice") from None


def _copy(member: _Member, source: IO[bytes], target: BinaryIO) -> None:
    left = member.size
    while left >= 0 and (block := source.read(min(_BLOCK_BYTES, left + 1))):
        target.write(block)
        left -= len(block)
    if left:
        raise UserError(f"{brief(member.name)} has not the size that the archive says")


def _move(source: Path, target: Path) -> None:
    """Move what is in a folder into another; what is there already, and is the same, may be."""
    for path in sorted(source.iterdir()):
        place = target / path.name
        if not os.path.lexists(place):
            os.rename(path, place)
        elif path.is_dir() and place.is_dir():
            _move(path, place)
        elif place.is_dir() or not filecmp.cmp(path, place, shallow=False):
            raise UserError(f"{place} is there already, with another content; move it away")
