"""Flags, locks and nameless files, where systems differ."""

from __future__ import annotations

import errno
import mmap
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

# Flags of os.open, 0 where a system lacks them.
NO_WAIT, NO_LINK = getattr(os, "O_NONBLOCK", 0), getattr(os, "O_NOFOLLOW", 0)
BINARY = getattr(os, "O_BINARY", 0) | getattr(os, "O_NOINHERIT", 0)
# Do not block on a FIFO, and do not acquire a controlling terminal.
READ = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | NO_WAIT | getattr(os, "O_NOCTTY", 0) | BINARY
NO_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.ENOSYS}  # of file systems without fsync of folders
PATIENCE_SECONDS, POLL_SECONDS = 5.0, 0.1
LOCKED_BYTE = 1 << 30  # of the file on Windows, whose locks keep others from reading what is locked

_seeking = threading.Lock()
_ordered = threading.Lock()  # a barrier too: other processors see a mark after what it marks


def lock(descriptor: int, wait: bool = False) -> None:
    """Lock an open file until it is closed; BlockingIOError if another has, unless `wait`."""
    if sys.platform != "win32":
        return fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    else:
        while True:
            os.lseek(descriptor, LOCKED_BYTE, os.SEEK_SET)
            try:
                return msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
            except OSError as error:
                if not wait:
                    raise BlockingIOError(error.errno, error.strerror) from error
                time.sleep(POLL_SECONDS)
            finally:
                os.lseek(descriptor, 0, os.SEEK_SET)


def number_for_child(descriptor: int) -> int:
    """Return the number by which a child process inherits an open file; on Windows its handle."""
    if sys.platform == "win32":
        return msvcrt.get_osfhandle(descriptor)
    return descriptor


def open_inherited(number: int) -> int:
    """Open the file that this process inherited by a number."""
    if sys.platform == "win32":
        return msvcrt.open_osfhandle(number, os.O_RDWR | BINARY)
    return number


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


def read_shared(descriptor: int, memory: mmap.mmap, count: int, offset: int) -> bytes:
    """Read bytes of a file that processes inherited from one another.

    They share the position in it too, which only the mapping leaves alone without pread.
    """
    if hasattr(os, "pread"):  # it also shows all writes before the last, unlike the mapping
        return os.pread(descriptor, count, offset)
    with _ordered:
        return memory[offset : offset + count]


def write_shared(descriptor: int, memory: mmap.mmap, content: bytes, offset: int) -> None:
    """Write bytes to a file that processes inherited from one another; OSError on a full disk."""
    if hasattr(os, "pwrite"):  # on a full disk the mapping would end the process
        while content:
            written = os.pwrite(descriptor, content, offset)
            content, offset = content[written:], offset + written
        return
    with _ordered:
        memory[offset : offset + len(content)] = content


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
    """Open a file that another process has open; OSError if this user or system may not."""
    if sys.platform != "linux":
        raise OSError(errno.ENOSYS, "only Linux shares open files; use one process on this system")
    return os.open(f"/proc/{process}/fd/{descriptor}", os.O_RDWR)


def replace(source: Path, path: Path) -> None:
    """Rename a file onto another one; on Windows wait for those that have that one open."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return os.replace(source, path)
        except PermissionError as error:
            if sys.platform != "win32":
                raise
            if time.monotonic() > deadline:
                reason = "it cannot be replaced; close it in other programs"
                raise OSError(errno.EACCES, reason, str(path)) from error
            time.sleep(POLL_SECONDS)


def sync_folder(folder: Path) -> None:
    """Make a rename in a folder survive a power cut; Windows opens no folders."""
    if sys.platform == "win32":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in NO_SYNC:
            raise
    finally:
        os.close(descriptor)
