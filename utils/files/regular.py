"""Open files for reading: only regular files, without blocking, within a size limit.

A FIFO can block forever, a device may never end, and a sparse file fills memory without taking disk
space. All files from outside the project are opened here.
"""

import codecs
import contextlib
import errno
import os
import stat
import struct
import sys
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from duet.utils.system import files

_KINDS = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a FIFO", stat.S_IFCHR: "a device"}
_IRREGULAR = "is {}, not a regular file"
UNLIMITED = sys.maxsize  # for files read in parts
MAX_BYTES = 1 << 28  # default for files read whole
NO_TEXT = "contains a null byte; not a text file"
# What Python's zipfile raises on damaged archives.
ZIP_ERRORS = (
    zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError, EOFError, OSError,
    struct.error, zlib.error,
)  # fmt: skip


def open_regular(path: str | Path, max_bytes: int = UNLIMITED) -> BinaryIO:
    """Open a regular file, or a link to one, in binary mode.

    OSError: it cannot be opened, is not a regular file, or is too large (see `strerror`).
    """
    descriptor = open_descriptor(path, max_bytes)
    return open(path, "rb", opener=lambda name, flags: descriptor)


def open_descriptor(path: str | Path, max_bytes: int = UNLIMITED) -> int:
    """Like `open_regular`, but return a descriptor for the caller to close."""
    name = str(path)
    try:
        descriptor = os.open(name, files.READ)
    except ValueError as error:  # a null byte, or a character not allowed in file names
        raise OSError(errno.EINVAL, f"not a valid file name: {error}", name) from error
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket, or a device without a driver
            raise OSError(errno.EINVAL, _IRREGULAR.format("a socket"), name) from error
        if os.path.isdir(name):  # which Windows does not open
            raise OSError(errno.EINVAL, _IRREGULAR.format("a folder"), name) from error
        raise
    try:
        status = os.fstat(descriptor)  # not os.stat: the path may point elsewhere by now
        if not stat.S_ISREG(status.st_mode):
            kind = _KINDS.get(stat.S_IFMT(status.st_mode), "a special file")
            raise OSError(errno.EINVAL, _IRREGULAR.format(kind), name)
        if status.st_size > max_bytes:
            text = f"has {status.st_size:,} bytes; accepted: at most {max_bytes:,}"
            raise OSError(errno.EFBIG, text, name)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def read_bytes(path: str | Path, max_bytes: int = MAX_BYTES) -> bytes:
    """Return the content of a regular file.

    OSError: as `open_regular`; or its size is another, as of a file being written or in /proc.
    """
    with open_regular(path, max_bytes) as file:
        size = os.fstat(file.fileno()).st_size
        content = file.read(size + 1) or b""  # None if a file in /proc would block
    if len(content) != size:
        found = f"{len(content):,}" if len(content) < size else f"over {size:,}"
        text = f"read {found} bytes, but its size is {size:,}; is it still being written?"
        raise OSError(errno.EIO, text, str(path))
    return content


def as_utf8(content: bytes) -> bytes:
    """Return a text without its byte order mark; UTF-16 with a mark, as of Windows, as UTF-8."""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        with contextlib.suppress(UnicodeDecodeError):
            content = content.decode("utf-16").encode()
    return content.removeprefix(codecs.BOM_UTF8)


def encoding_fault(error: UnicodeDecodeError) -> str:
    """Return where a text is not UTF-8, and the next step."""
    if b"\0" in error.object:
        return NO_TEXT
    line = error.object.count(b"\n", 0, error.start) + 1
    byte = error.object[error.start]
    return f"line {line}: the byte {byte:#x} is not UTF-8; save the file as UTF-8"


def read_text_bytes(path: str | Path, max_bytes: int = MAX_BYTES) -> bytes:
    """Return the content of a text file in any encoding, as `as_utf8` does.

    OSError: as `read_bytes`; or it contains a null byte, as a sparse file does.
    """
    content = as_utf8(read_bytes(path, max_bytes))
    if b"\0" in content:
        raise OSError(errno.EILSEQ, NO_TEXT, str(path))
    return content


def read_text(path: str | Path, max_bytes: int = MAX_BYTES) -> str:
    """Return the content of a UTF-8 text file; OSError, UnicodeDecodeError."""
    return read_text_bytes(path, max_bytes).decode("utf-8")


@contextmanager
def pinned(path: str | Path, max_bytes: int) -> Iterator[Path]:
    """Yield a path to the open file, for libraries that only accept paths; OSError."""
    with open_regular(path, max_bytes) as file:
        yield files.path_of_open(file.fileno()) or Path(path)
