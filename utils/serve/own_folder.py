"""A temporary folder that is removed after its process, however that ends.

Before: weights are to be converted. After: `worker_process.py` has the worker write there.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

PREFIX = "duet-serve-"
OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


class OwnFolder:
    """A new folder that only this user can read, locked by this process.

    The kernel releases the lock however a process ends: then the next `OwnFolder` removes what
    that left behind.
    """

    def __init__(self) -> None:
        _remove_unlocked(Path(tempfile.gettempdir()))
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
            self._lock = _locked(self.path)
            if self._lock is not None and self.path.exists():
                return
            self._release()  # another server took it for one that was left behind

    def remove(self) -> None:
        """Remove the folder with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._release()

    def _release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
        self._lock = None


def _remove_unlocked(place: Path) -> None:
    """Remove the folders of this user whose process has ended."""
    for path in place.glob(f"{PREFIX}*"):
        lock = _locked(path)
        if lock is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(lock)


def _locked(path: Path) -> int | None:
    """Return the lock of a folder of this user; None if another process has it."""
    lock = None
    with contextlib.suppress(OSError):
        lock = os.open(path, OPEN_FOLDER)
        if os.fstat(lock).st_uid == os.getuid():
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
    if lock is not None:
        os.close(lock)
    return None
