"""Unpack an archive by the standard library's safe extraction, within a bound of its size."""

from __future__ import annotations

import filecmp
import gzip
import lzma
import os
import struct
import tarfile
import zipfile
import zlib
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

from utils.errors import UserError, brief
from utils.files.regular import open_regular

SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz")
MAX_EXPANSION = 100  # unpacked bytes for each byte of an archive
SMALL_BYTES = 1 << 24  # to which any archive may expand
_DAMAGES = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error,
            EOFError, RuntimeError, ValueError, LookupError, OverflowError)  # fmt: skip


def unpack(archive: Path, name: str, folder: Path) -> int:
    """Unpack an archive beside what is in a folder already; return the number of files.

    Args:
        name: its suffix says which kind of archive it is.

    Raises:
        UserError: it is damaged, expands to too much, has links, devices or names that lead out
            of the folder, or would replace another file. The folder is then as before.
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
        text = f"damaged, or with members that lead elsewhere: {brief(str(error))}"
        raise UserError(f"{archive}: {text}") from error
    except OSError as error:
        raise UserError(f"{archive}: cannot be unpacked into {folder}: {error}") from error


def _unpack_zip(file: BinaryIO, working: str) -> None:
    with zipfile.ZipFile(file) as archive:
        _require_bound(sum(entry.file_size for entry in archive.infolist()), file)
        archive.extractall(working)


def _unpack_tar(file: BinaryIO, working: str, is_compressed: bool) -> None:
    if is_compressed:
        # Before tarfile reads headers of any length: no content is longer than the stream.
        with gzip.GzipFile(fileobj=file) as stream:
            while stream.read(1 << 20):
                _require_bound(stream.tell(), file)
        file.seek(0)
    with tarfile.open(fileobj=file, mode="r:gz" if is_compressed else "r:") as archive:
        for member in archive:
            if not (member.isreg() or member.isdir()) or member.issparse():
                raise UserError(f"{brief(member.name)} is a link or a device")
            archive.extract(member, working, filter="data")


def _require_bound(num_bytes: int, file: BinaryIO) -> None:
    if num_bytes > SMALL_BYTES + MAX_EXPANSION * os.fstat(file.fileno()).st_size:
        raise UserError(f"it expands to over {MAX_EXPANSION} times its size")


def _move(source: Path, folder: Path) -> int:
    """Move all files of a folder into another one; what is there already must be equal."""
    files = [path for path in source.rglob("*") if path.is_file()]
    places = [folder / path.relative_to(source) for path in files]
    for path, place in zip(files, places, strict=True):
        if place.exists() and not filecmp.cmp(path, place, shallow=False):
            raise UserError(f"{place} is there already, with another content; move it away")
    for path, place in zip(files, places, strict=True):
        place.parent.mkdir(parents=True, exist_ok=True)
        os.replace(path, place)
    return len(files)
