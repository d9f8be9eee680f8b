"""Open files for reading: only regular files, without waiting, and within a size limit.

A FIFO makes its reader wait for ever, a device may never end, and a file of holes takes no disk
space but all memory. Every file from outside the project is opened here.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

# A FIFO is opened without a writer, and a terminal does not become ours.
_WITHOUT_WAITING = os.O_NONBLOCK | os.O_NOCTTY
_KINDS = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a FIFO", stat.S_IFCHR: "a device"}
_IRREGULAR = "is {}; a regular file is needed"
UNLIMITED = sys.maxsize  # for what is read in parts
MAX_BYTES = 1 << 28  # of what is read whole, where the reader knows no better


def open_regular(path: str | Path, max_bytes: int = UNLIMITED) -> BinaryIO:
    """Open a regular file, or a link to one, to read its bytes.

    Raises:
        OSError: it cannot be opened, is no regular file, or is larger; `strerror` says which.
    """
    descriptor = open_descriptor(path, max_bytes)
    return open(path, "rb", opener=lambda name, flags: descriptor)


def open_descriptor(path: str | Path, max_bytes: int = UNLIMITED) -> int:
    """Open a file as `open_regular` does; the caller closes it."""
    name = str(path)
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC | _WITHOUT_WAITING)
    except ValueError as error:  # a null byte, or a character that no file name can have
        raise OSError(errno.EINVAL, f"no file can have this name: {error}", name) from error
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket, or a device without a driver
            raise OSError(errno.EINVAL, _IRREGULAR.format("a socket"), name) from error
        raise
    try:
        status = os.fstat(descriptor)  # of what was opened: another may have the name by now
        if not stat.S_ISREG(status.st_mode):
            kind = _KINDS.get(stat.S_IFMT(status.st_mode), "no file")
            raise OSError(errno.EINVAL, _IRREGULAR.format(kind), name)
        if status.st_size > max_bytes:
            text = f"has {status.st_size:,} bytes; at most {max_bytes:,} are read"
            raise OSError(errno.EFBIG, text, name)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def read_bytes(path: str | Path, max_bytes: int = MAX_BYTES) -> bytes:
    """Return the content of a regular file.

    Raises:
        OSError: as `open_regular`; or the file has more or fewer bytes than the system says, as
            one that is being written or one of /proc.
    """
    with open_regular(path, max_bytes) as file:
        size = os.fstat(file.fileno()).st_size
        content = file.read(size + 1) or b""  # None where a file of /proc would have waited
    if len(content) != size:
        gives = f"{len(content):,}" if len(content) < size else f"over {size:,}"
        text = f"gives {gives} bytes, but its size is {size:,}; a finished file is needed"
        raise OSError(errno.EIO, text, str(path))
    return content


def read_text_bytes(path: str | Path, max_bytes: int = MAX_BYTES) -> bytes:
    """Return the content of a regular file of text, which need not be UTF-8.

    Raises:
        OSError: as `read_bytes`; or it holds a null byte, as a file of holes does.
    """
    content = read_bytes(path, max_bytes)
    if b"\0" in content:
        raise OSError(errno.EILSEQ, "holds a null byte; a text file is needed", str(path))
    return content


def read_text(path: str | Path, max_bytes: int = MAX_BYTES) -> str:
    """Return the content of a regular file in UTF-8.

    Raises:
        OSError: as `read_text_bytes`.
        UnicodeDecodeError: it is not UTF-8.
    """
    return read_text_bytes(path, max_bytes).decode("utf-8")


@contextmanager
def pinned(path: str | Path, max_bytes: int) -> Iterator[Path]:
    """Yield a name of the open file, for a library that opens files only by name.

    Raises:
        OSError: as `open_regular`.
    """
    with open_regular(path, max_bytes) as file:
        yield Path(f"/proc/self/fd/{file.fileno()}")
