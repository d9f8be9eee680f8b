"""Flags, locks and nameless files, where systems differ."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

try:
    import fcntl
except ImportError:
    import msvcrt  # Windows

# Flags of os.open, 0 where a system lacks them.
NO_WAIT, NO_LINK = getattr(os, "O_NONBLOCK", 0), getattr(os, "O_NOFOLLOW", 0)
BINARY = getattr(os, "O_BINARY", 0) | getattr(os, "O_NOINHERIT", 0)
# Do not block on a FIFO, and do not acquire a controlling terminal.
READ = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | NO_WAIT | getattr(os, "O_NOCTTY", 0) | BINARY
# Child processes get open files by number; on Windows they would get handles: no loader workers.
CHILDREN_INHERIT = hasattr(os, "fork")
LOCKED_BYTE = 1 << 30  # of the file on Windows, whose locks keep others from reading what is locked

_seeking = threading.Lock()


def lock(descriptor: int, wait: bool = False) -> None:
    """Lock an open file until it is closed; BlockingIOError if another has, unless `wait`."""
    if "fcntl" in globals():
        return fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    while True:
        os.lseek(descriptor, LOCKED_BYTE, os.SEEK_SET)
        try:
            return msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        except OSError as error:
            if not wait:
                raise BlockingIOError(error.errno, error.strerror) from error
            time.sleep(0.5)
        finally:
            os.lseek(descriptor, 0, os.SEEK_SET)


def after_fork_in_child(act: Callable[[], None]) -> None:
    """Call a function in each child that is forked; nothing to do on systems without fork."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=act)


def read_at(descriptor: int, count: int, offset: int) -> bytes:
    """Read up to `count` bytes of an open file at an offset."""
    if hasattr(os, "pread"):
        return os.pread(descriptor, count, offset)
    with _seeking:
        os.lseek(descriptor, offset, os.SEEK_SET)
        return os.read(descriptor, count)


def write_at(descriptor: int, content: bytes, offset: int) -> int:
    """Write to an open file at an offset; return how many bytes were written."""
    if hasattr(os, "pwrite"):
        return os.pwrite(descriptor, content, offset)
    with _seeking:
        os.lseek(descriptor, offset, os.SEEK_SET)
        return os.write(descriptor, content)


def memory_file() -> int:
    """Open a file without a name, in memory where a system has such files."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("duet")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def path_of_open(descriptor: int) -> Path | None:
    """Return a path to an open file, whatever its name leads to by now; None without one."""
    for folder in ("/proc/self/fd", "/dev/fd"):  # Linux, macOS
        if os.path.exists(f"{folder}/{descriptor}"):
            return Path(folder, str(descriptor))
    return None


def open_of_process(process: int, descriptor: int) -> int:
    """Open a file that another process has open; OSError if this system or user may not."""
    return os.open(f"/proc/{process}/fd/{descriptor}", os.O_RDWR)


def sync_folder(folder: Path) -> None:
    """Make a rename in a folder survive a power cut; Windows opens no folders."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except PermissionError:
        if CHILDREN_INHERIT:
            raise
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
