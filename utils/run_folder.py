"""The folder of a run, locked against a second process; and temporary ones that outlive no kill."""

from __future__ import annotations

import contextlib
import datetime
import errno
import fcntl
import logging
import os
import re
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

from duet.utils.errors import UserError
from duet.utils.regular_files import open_regular

LOCK_FILE, HELD_FILE = "run.lock", "held.lock"
NO_LOCKS = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS}
HOLDER = re.compile(rb"process \d{1,10} on [\w.-]{1,255} since [\d:T+-]{25}")

log = logging.getLogger("train")


def create_run_folder(project: Path, name: str, exist_ok: bool) -> Path:
    """Make project/name, or project/name2, name3, ... if it exists and exist_ok is not set."""
    try:
        project.mkdir(parents=True, exist_ok=True)
        for suffix in ("", *(str(number) for number in range(2, 10_000))):
            folder = project / f"{name}{suffix}"
            with contextlib.suppress(FileExistsError):
                folder.mkdir(exist_ok=exist_ok)
                return folder
    except OSError as error:
        raise UserError(
            f"--project {project} --name {name}: no folder can be made in {project.absolute()}: "
            f"{error.strerror}; give a --project that can be written to, or a shorter --name"
        ) from error
    raise UserError(f"--project {project} is full of runs called {name}; give another --name")


@contextlib.contextmanager
def working_folder(prefix: str) -> Iterator[Path]:
    """Yield a temporary folder; remove those of this prefix whose processes were killed.

    The process of a folder holds a lock on a file in it, which it has there under this name only
    once it is locked.
    """
    for held in Path(tempfile.gettempdir()).glob(f"{prefix}*/{HELD_FILE}"):
        with contextlib.suppress(OSError), open_regular(held) as file:  # another's, or at work
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(held.parent)
    with tempfile.TemporaryDirectory(prefix=prefix) as name:
        folder = Path(name)
        with open(folder / "new.lock", "xb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            os.rename(file.name, folder / HELD_FILE)
            yield folder


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
        now = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
        holder = f"process {os.getpid()} on {socket.gethostname()} since {now}\n"
        with contextlib.ExitStack() as stack:
            try:
                flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
                descriptor = os.open(path, flags, 0o666)
                stack.callback(os.close, descriptor)
                _lock(descriptor, folder)
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, holder.encode(), 0)
            except OSError as error:
                raise UserError(
                    f"{path}: it cannot be written ({error.strerror}); give permission, or remove "
                    "it if it is no file"
                ) from error
            stack.pop_all()
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


def _lock(descriptor: int, folder: Path) -> None:
    """Lock an open file, or warn where the file system has no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        found = HOLDER.match(os.pread(descriptor, 512, 0))
        raise UserError(
            f"{folder} is being written by {found[0].decode() if found else 'another process'}; "
            "wait until it ends or stop it (kill -TERM saves its state), or start a new run under "
            "another --name"
        ) from None
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        log.warning("%s: no lock can be had here (%s); start no second process on this run "
                    "yourself", folder, error.strerror)  # fmt: skip
