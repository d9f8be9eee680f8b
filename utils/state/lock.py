"""The lock of a run's folder: one process writes there; others get its name in an error.

Before: a folder that `utils/state/folder.py` made or `utils/state/resume.py` found. After: only the
process that has its lock writes, cleans up and removes there.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import fcntl
import logging
import os
import re
import socket
import stat
from pathlib import Path

from utils.errors import UserError

LOCK_FILE = "run.lock"
MOUNTS = Path("/proc/self/mountinfo")
# Mount options of NFS, Lustre and CIFS with which other machines do not see a lock.
LOCAL_OPTIONS = {"nolock", "local_lock=all", "local_lock=flock", "localflock", "nobrl"}
NO_LOCKS = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS}
HOLDER = re.compile(rb"process \d{1,10} on [\w.-]{1,255} since [\d:T+-]{25}")

log = logging.getLogger("train")


class RunLock:
    """The right to write into the folder of one run.

    The kernel releases it however this process ends. The file in the folder stays: it names the
    last process that had the lock. Processes that this one starts do not keep it.
    """

    def __init__(self) -> None:
        self._descriptor: int | None = None

    def take(self, folder: Path) -> None:
        """Lock a folder until the end of the block; one that is locked here already stays so.

        Raises:
            UserError: another process has the lock; the lock's file cannot be written.
        """
        if self._descriptor is not None:
            return
        path = folder / LOCK_FILE
        descriptor = _open(path)
        try:
            _lock(descriptor, folder)
            _sign(descriptor)
        except BaseException as error:
            os.close(descriptor)
            if isinstance(error, OSError):
                raise UserError(f"{path}: it cannot be written ({error.strerror})") from error
            raise
        self._descriptor = descriptor
        os.register_at_fork(after_in_child=self._close)  # a copy would keep the lock

    def __enter__(self) -> RunLock:
        return self

    def __exit__(self, *error: object) -> None:
        self._close()

    def _close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = None


def _open(path: Path) -> int:
    """Open the lock's file, which must be a regular one; make it if it is not there."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags, 0o666)
    except OSError as error:
        remedy = "give permission, or remove it if it is no file"
        raise UserError(f"{path}: it cannot be opened ({error.strerror}); {remedy}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UserError(f"{path}: it is no regular file; remove it")
    return descriptor


def _lock(descriptor: int, folder: Path) -> None:
    """Lock an open file, or warn where the file system has no locks that all machines see."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UserError(
            f"{folder} is being written by {_holder(descriptor)}; wait until it ends or stop it "
            "(kill -TERM saves its state), or start a new run under another --name"
        ) from None
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        _warn(folder, f"no lock can be had here ({error.strerror})")
    else:
        if _is_local(descriptor):
            _warn(
                folder, "locks hold only on this machine, because of how the file system is mounted"
            )


def _holder(descriptor: int) -> str:
    """Return who has the lock, as it signed the file."""
    found = HOLDER.match(os.pread(descriptor, 512, 0))
    return found[0].decode() if found else "another process"


def _sign(descriptor: int) -> None:
    """Write into the file who has the lock."""
    now = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
    os.ftruncate(descriptor, 0)
    text = f"process {os.getpid()} on {socket.gethostname()} since {now}\n"
    os.pwrite(descriptor, text.encode(), 0)


def _is_local(descriptor: int) -> bool:
    """Return whether the file system is mounted so that other machines do not see the lock."""
    number = os.fstat(descriptor).st_dev
    device = f"{os.major(number)}:{os.minor(number)}"
    with contextlib.suppress(OSError):
        for line in MOUNTS.read_text(errors="replace").splitlines():
            fields, _, of_system = line.partition(" - ")
            if fields.split()[2:3] == [device]:
                return bool(LOCAL_OPTIONS & set(of_system.split()[-1].split(",")))
    return False


def _warn(folder: Path, what: str) -> None:
    log.warning("%s: %s; start no second process on this run yourself", folder, what)
