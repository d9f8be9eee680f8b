"""The named pieces of a weights file, in a zip archive or a folder, read within bounds."""

from __future__ import annotations

import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from duet.utils.errors import UserError, brief
from duet.utils.regular_files import open_regular, read_bytes
from duet.utils.text import count
from duet.utils.weights.checkpoint import MAX_WEIGHTS_BYTES

MAX_EXPANSION = 4  # uncompressed bytes for each byte of an archive; weights hardly compress
MAX_MEMBERS = 100_000

# What Python's zipfile raises on damaged archives.
ZIP_ERRORS = (
    zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError, EOFError, OSError,
    struct.error, zlib.error,
)  # fmt: skip


@dataclass(frozen=True)
class Members:
    """Named pieces of bytes.

    Attributes:
        sizes: uncompressed sizes by name, in archive order.
        size: bytes in all, which bound what tensors may take.
    """

    sizes: Mapping[str, int]
    size: int
    load: Callable[[str], bytes]

    def read(self, name: str, most: int = MAX_WEIGHTS_BYTES) -> bytes:
        """Return the bytes of a name; raise UserError if it is absent, damaged or over `most`."""
        if name not in self.sizes:
            raise UserError(f"it lacks {brief(name)}")
        if self.sizes[name] > most:
            raise UserError(
                f"{brief(name)} has {self.sizes[name]:,} bytes; at most {most:,} are read"
            )
        return self.load(name)


def members_of_folder(folder: Path) -> Members:
    """Return the regular files of a folder and of the folders in it."""
    entries = (path for depth in ("*/*", "*") for path in folder.glob(depth))
    found = list(islice(entries, MAX_MEMBERS + 1))
    if len(found) > MAX_MEMBERS:
        raise UserError(f"the folder holds over {count(MAX_MEMBERS, 'entry', 'entries')}")
    files = sorted(path for path in found if path.is_file())
    sizes = {path.relative_to(folder).as_posix(): path.stat().st_size for path in files}
    return Members(
        sizes, sum(sizes.values()), lambda name: read_bytes(folder / name, MAX_WEIGHTS_BYTES)
    )


@contextmanager
def open_zip(path: Path) -> Iterator[Members]:
    """Yield the members of a zip file while it is open."""
    with open_regular(path, MAX_WEIGHTS_BYTES) as file:
        try:
            archive = zipfile.ZipFile(file)
        except ZIP_ERRORS as error:
            raise UserError(f"damaged zip archive: {brief(str(error))}") from error
        with archive:
            sizes = _sizes_of(archive, file_size := os.fstat(file.fileno()).st_size)
            size = max(file_size, sum(sizes.values()))
            yield Members(sizes, size, lambda name: _read_member(archive, archive.getinfo(name)))


def _sizes_of(archive: zipfile.ZipFile, file_size: int) -> dict[str, int]:
    """Return the size of each member; UserError for an archive that is no weights file."""
    entries = archive.infolist()
    sizes = {entry.filename: entry.file_size for entry in entries}
    if len(entries) > MAX_MEMBERS or len(sizes) < len(entries):
        raise UserError("the archive has too many members, or two of one name")
    if any(entry.flag_bits & 1 for entry in entries):
        raise UserError("the archive is encrypted; save it without a password")
    if sum(sizes.values()) > MAX_EXPANSION * file_size:
        raise UserError(
            f"the archive of {file_size:,} bytes would expand to {sum(sizes.values()):,}, over "
            f"{MAX_EXPANSION} times its size; no weights file does"
        )
    return sizes


def _read_member(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    """Return the bytes of a member, whose checksum is verified."""
    name = brief(entry.filename)
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise UserError(f"{name} is compressed in a way that is not read")
    try:
        # A size is passed, since an unsized read would decompress without a bound.
        with archive.open(entry) as file:
            data = file.read(entry.file_size)
            extra = file.read(1)  # at the end the checksum is compared
    except ZIP_ERRORS as error:
        raise UserError(f"damaged zip archive, {name}: {brief(str(error))}") from error
    if len(data) != entry.file_size or extra:
        raise UserError(f"damaged zip archive, {name} has not the size it declares")
    return data
