"""Arrays that can be made again, kept for the next run in the user's cache folder.

$DUET_CACHE, else $XDG_CACHE_HOME/duet, else ~/.cache/duet. An empty DUET_CACHE keeps nothing. A
file that is damaged, or of another version, counts as absent. If a file cannot be written, a line
in the log says so, and the work goes on.

Source of the folder's place: the XDG Base Directory Specification 0.8.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import time
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from utils.files.atomic import atomic_file
from utils.files.project import PROJECT
from utils.files.regular import read_bytes

VARIABLE = "DUET_CACHE"
MAX_FILE_BYTES = 1 << 30
MAX_FOLDER_BYTES = 2 << 30  # of all files of one kind; the oldest go
MAX_FILES = 1000  # likewise
_UNFINISHED_S = 3600  # the temporary file of a writer that was killed
_CHECKSUM, _DIGEST_BYTES = "checksum", 32

Arrays = Mapping[str, np.ndarray]

log = logging.getLogger("cache")


def cache_folder() -> Path | None:
    """Return the folder for all that is kept; None if there is none."""
    if (chosen := os.environ.get(VARIABLE)) is not None:
        return Path(chosen).absolute() if chosen else None
    shared = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(shared):
        return Path(shared) / "duet"
    home = os.path.expanduser("~")
    return Path(home) / ".cache" / "duet" if os.path.isabs(home) else None


@lru_cache
def version_of(*patterns: str) -> bytes:
    """Return a hash of files of the project, by patterns from its folder: the code of a reader.

    A version of the code does not read what another version wrote.
    """
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for path in sorted(path for pattern in patterns for path in PROJECT.glob(pattern)):
        digest.update(str(path.relative_to(PROJECT)).encode() + b"\0" + read_bytes(path))
    return digest.digest()


def read_arrays(kind: str, name: str, version: bytes) -> dict[str, np.ndarray] | None:
    """Return the arrays that `write_arrays` kept, read-only; None if they are not there.

    They are as they were written, but anyone who can write into the folder may have done so: the
    caller checks what they say.
    """
    path = _path(kind, name)
    if path is None:
        return None
    try:
        arrays = load(read_bytes(path, MAX_FILE_BYTES))
    except (OSError, SafetensorError, ValueError, KeyError, TypeError, MemoryError):
        return None
    found = arrays.pop(_CHECKSUM, np.zeros(0, np.uint8))
    if found.tobytes() != _checksum(arrays, version):
        return None
    with contextlib.suppress(OSError):
        os.utime(path)  # it was used
    return arrays


def write_arrays(kind: str, name: str, version: bytes, arrays: Arrays) -> None:
    """Keep arrays of up to a GiB for the next run; a failure is a line in the log."""
    path = _path(kind, name)
    if path is None:
        return
    if sum(array.nbytes for array in arrays.values()) > MAX_FILE_BYTES * 0.99:
        return log.info("%s are not kept for the next run: they are larger than a GiB", kind)
    checksum = np.frombuffer(_checksum(arrays, version), np.uint8)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with atomic_file(path) as file:
            file.write(save({**arrays, _CHECKSUM: checksum}))
    except OSError as error:
        return log.info("%s are not kept for the next run: %s", kind, error)
    _remove_oldest(path.parent)


def _path(kind: str, name: str) -> Path | None:
    folder = cache_folder()
    return None if folder is None else folder / kind / f"{name}.safetensors"


def _checksum(arrays: Arrays, version: bytes) -> bytes:
    """Return a hash of the version and of every array with its name, type and shape."""
    digest = hashlib.blake2b(version, digest_size=_DIGEST_BYTES)
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"\n{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).data)
    return digest.digest()


def _remove_oldest(folder: Path) -> None:
    """Keep the newest files of a folder, within its limits, and nothing that is unfinished."""
    kept = kept_bytes = 0
    for path, status in sorted(_files(folder), key=lambda found: -found[1].st_mtime_ns):
        if path.suffix == ".tmp":
            is_old = status.st_mtime < time.time() - _UNFINISHED_S
        else:
            kept, kept_bytes = kept + 1, kept_bytes + status.st_size
            is_old = kept > MAX_FILES or kept_bytes > MAX_FOLDER_BYTES
        if is_old:
            with contextlib.suppress(OSError):
                path.unlink()


def _files(folder: Path) -> Iterable[tuple[Path, os.stat_result]]:
    """Yield our files of a folder; others may come and go meanwhile."""
    for path in [*folder.glob("*.safetensors"), *folder.glob(".*.safetensors.*.tmp")]:
        with contextlib.suppress(OSError):
            yield path, path.lstat()
