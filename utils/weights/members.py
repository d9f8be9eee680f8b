"""The named pieces of a weights file, in a zip archive or a folder, read within bounds."""

from __future__ import annotations

import os
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Protocol

from utils.errors import UserError, brief
from utils.regular_files import open_regular, read_bytes
from utils.text import count
from utils.weights.checkpoint import MAX_WEIGHTS_BYTES

MAX_EXPANSION = 4  # uncompressed bytes for each byte of an archive; weights hardly compress
MAX_MEMBERS = 100_000

# What Python's zipfile raises on damaged archives.
ZIP_ERRORS = (
    zipfile.BadZipFile,
    NotImplementedError,
    RuntimeError,
    ValueError,
    EOFError,
    OSError,
    struct.error,
    zlib.error,
)


class Members(Protocol):
    """Named pieces of bytes."""

    size: int  # bytes in all, uncompressed, which bound what tensors may take

    def names(self) -> list[str]:
        """Return all names, in the order of the archive."""

    def read(self, name: str, most: int | None = None) -> bytes:
        """Return the bytes of a name; raise UserError if it is absent, damaged or over `most`."""


class ZipMembers:
    """The members of a zip archive; checksums are verified as they are read."""

    def __init__(self, archive: zipfile.ZipFile, file_size: int) -> None:
        self.archive = archive
        entries = archive.infolist()
        if len(entries) > MAX_MEMBERS or len({entry.filename for entry in entries}) < len(entries):
            raise UserError("the archive has too many members, or two of one name")
        if any(entry.flag_bits & 1 for entry in entries):
            raise UserError("the archive is encrypted; save it without a password")
        expanded = sum(entry.file_size for entry in entries)
        if expanded > MAX_EXPANSION * file_size:
            raise UserError(
                f"the archive of {file_size:,} bytes would expand to {expanded:,}, over "
                f"{MAX_EXPANSION} times its size; no weights file does"
            )
        self.size = max(file_size, expanded)

    def names(self) -> list[str]:
        return self.archive.namelist()

    def read(self, name: str, most: int | None = None) -> bytes:
        entry = self.archive.NameToInfo.get(name)
        if entry is None:
            raise UserError(f"the archive lacks {brief(name)}")
        _require_size(name, entry.file_size, most)
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise UserError(f"{brief(name)} is compressed in a way that is not read")
        try:
            # A size is passed, since an unsized read would decompress without a bound.
            with self.archive.open(entry) as file:
                data = file.read(entry.file_size)
                extra = file.read(1)  # at the end the checksum is compared
        except ZIP_ERRORS as error:
            raise UserError(f"damaged zip archive, {brief(name)}: {brief(str(error))}") from error
        if len(data) != entry.file_size or extra:
            raise UserError(f"damaged zip archive, {brief(name)} has not the size it declares")
        return data


@contextmanager
def open_zip(path: Path) -> Iterator[ZipMembers]:
    """Yield the members of a zip file while it is open."""
    with open_regular(path, MAX_WEIGHTS_BYTES) as file:
        try:
            archive = zipfile.ZipFile(file)
        except ZIP_ERRORS as error:
            raise UserError(f"damaged zip archive: {brief(str(error))}") from error
        with archive:
            yield ZipMembers(archive, os.fstat(file.fileno()).st_size)


class FolderMembers:
    """The regular files of a folder and of the folders in it."""

    def __init__(self, folder: Path) -> None:
        entries = (path for depth in ("*/*", "*") for path in folder.glob(depth))
        found = list(islice(entries, MAX_MEMBERS + 1))
        if len(found) > MAX_MEMBERS:
            raise UserError(f"the folder holds over {count(MAX_MEMBERS, 'entry', 'entries')}")
        files = sorted(path for path in found if path.is_file())
        self.paths = {path.relative_to(folder).as_posix(): path for path in files}
        self.size = sum(path.stat().st_size for path in files)

    def names(self) -> list[str]:
        return list(self.paths)

    def read(self, name: str, most: int | None = None) -> bytes:
        if name not in self.paths:
            raise UserError(f"the folder lacks {brief(name)}")
        _require_size(name, self.paths[name].stat().st_size, most)
        return read_bytes(self.paths[name], MAX_WEIGHTS_BYTES)


def _require_size(name: str, size: int, most: int | None) -> None:
    if most is not None and size > most:
        raise UserError(f"{brief(name)} has {size:,} bytes; at most {most:,} are read")
