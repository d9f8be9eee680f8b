"""Run folders, locked against a second process, and distinct names of the files in them."""

from __future__ import annotations

import contextlib
import datetime
import errno
import logging
import os
import re
import socket
import sys
from collections import Counter
from pathlib import Path

from duet.utils.errors import UserError
from duet.utils.system import files

LOCK_FILE = "run.lock"
NO_LOCKS = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS}
FOLDS_CASE = sys.platform in ("win32", "darwin")  # a.jpg and A.jpg are one file
HOLDER = re.compile(rb"process \d{1,10} on [\w.-]{1,255} since [\d:T+-]{25}")

log = logging.getLogger("train")


def create_run_folder(project: Path, name: str, exist_ok: bool) -> Path:
    """Create project/name, or project/name2, name3, ... if it exists and exist_ok is not set."""
    try:
        project.mkdir(parents=True, exist_ok=True)
        for suffix in ("", *(str(number) for number in range(2, 10_000))):
            folder = project / f"{name}{suffix}"
            with contextlib.suppress(FileExistsError):
                folder.mkdir(exist_ok=exist_ok)
                return folder
    except OSError as error:
        raise UserError(
            f"--project {project} --name {name}: could not create a folder in "
            f"{project.absolute()}: {error.strerror}; use a writable --project, or a shorter --name"
        ) from error
    raise UserError(f"--project {project} has too many runs named {name}; use another --name")


class RunLock:
    """A lock on the folder of a run.

    The kernel releases it however this process ends. The lock file stays and names its last holder.
    Child processes do not inherit the lock.
    """

    def __init__(self) -> None:
        self._descriptor: int | None = None

    def take(self, folder: Path) -> None:
        """Lock a folder until the block ends; no effect if already locked here.

        UserError: another process holds the lock, or the lock file cannot be written.
        """
        if self._descriptor is not None:
            return
        path = folder / LOCK_FILE
        now = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
        holder = f"process {os.getpid()} on {socket.gethostname()} since {now}\n"
        with contextlib.ExitStack() as stack:
            try:
                flags = os.O_RDWR | os.O_CREAT | files.NO_LINK | files.NO_WAIT
                descriptor = os.open(path, flags, 0o666)
                stack.callback(os.close, descriptor)
                _lock(descriptor, folder)
                os.ftruncate(descriptor, 0)
                os.write(descriptor, holder.encode())
            except OSError as error:
                raise UserError(
                    f"{path}: cannot be written ({error.strerror}); change its permissions, or "
                    "remove it if it is not a file"
                ) from error
            stack.pop_all()
        self._descriptor = descriptor
        files.after_fork_in_child(self._close)  # the child would keep the lock

    def __enter__(self) -> RunLock:
        return self

    def __exit__(self, *error: object) -> None:
        self._close()

    def _close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = None


def _lock(descriptor: int, folder: Path) -> None:
    """Lock an open file; warn if the file system does not support locks."""
    try:
        files.lock(descriptor)
    except BlockingIOError:
        found = HOLDER.match(os.read(descriptor, 512))
        raise UserError(
            f"{folder} is in use by {found[0].decode() if found else 'another process'}; wait for "
            "it to end, stop it (kill -TERM saves its state), or start a new run with another "
            "--name"
        ) from None
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        log.warning("%s: this file system does not support locks (%s); do not start a second "
                    "process on this run", folder, error.strerror)  # fmt: skip


class Names:
    """Distinct names, which also differ from NAME_1, NAME_2, ... of a video's frames."""

    def __init__(self, folds_case: bool = FOLDS_CASE) -> None:
        self._key = str.casefold if folds_case else str
        self._taken: dict[str, bool] = {}  # whether it is of a video
        self._before_numbers: set[str] = set()  # what NAME_1, NAME_2, ... begin with
        self._numbers: Counter[str] = Counter()  # further uses of a name

    def take(self, name: str, is_video: bool = False) -> str:
        """Return the name, or NAME-2, NAME-3, ... if it is taken."""
        found = name
        while self._is_taken(found, is_video):
            self._numbers[name] += 1
            found = f"{name}-{self._numbers[name] + 1}"
        self._taken[self._key(found)] = is_video
        self._before_numbers.add(_video_of_frame(self._key(found)))
        return found

    def _is_taken(self, name: str, is_video: bool) -> bool:
        name = self._key(name)
        has_frame = is_video and name in self._before_numbers
        return name in self._taken or has_frame or self._taken.get(_video_of_frame(name), False)


def _video_of_frame(stem: str) -> str:
    name, _, number = stem.rpartition("_")
    return name if number.isdecimal() else ""
