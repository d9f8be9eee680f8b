"""Cache arrays that can be recomputed in the user's cache folder, for the next run.

$DUET_CACHE, else $XDG_CACHE_HOME/duet, else ~/.cache/duet. An empty DUET_CACHE disables the cache.
Incomplete files and other versions are ignored. A failure to write is logged and otherwise
ignored.

Location: XDG Base Directory Specification 0.8.
"""

import hashlib
import logging
import os
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from duet.utils.files.atomic import atomic_file
from duet.utils.files.regular import pinned, read_bytes
from duet.utils.project import PROJECT

VARIABLE = "DUET_CACHE"
MAX_FOLDER_BYTES = 2 << 30  # per kind; the oldest files are removed
# File system timestamps have a resolution of milliseconds, or two seconds on FAT: a file changed
# just now may change again without a new timestamp.
RECENT_NS = 2_000_000_000
_DIGEST_BYTES = 32

Arrays = Mapping[str, np.ndarray]

log = logging.getLogger("cache")


def cache_folder() -> Path | None:
    """Return the cache folder; None if disabled or unknown."""
    if (chosen := os.environ.get(VARIABLE)) is not None:
        return Path(chosen).absolute() if chosen else None
    shared = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(shared):
        return Path(shared) / "duet"
    home = os.path.expanduser("~")
    return Path(home) / ".cache" / "duet" if os.path.isabs(home) else None


@lru_cache
def version_of(*patterns: str) -> bytes:
    """Return a hash of the project files that match the patterns: the code that fills the cache."""
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for path in sorted(path for pattern in patterns for path in PROJECT.glob(pattern)):
        digest.update(str(path.relative_to(PROJECT)).encode() + b"\0" + read_bytes(path))
    return digest.digest()


def read_arrays(kind: str, name: str, version: bytes) -> dict[str, np.ndarray] | None:
    """Return arrays cached by `write_arrays` with this version; None if there are none."""
    path = _path(kind, name)
    if path is None:
        return None
    try:
        with pinned(path, MAX_FOLDER_BYTES) as own, safe_open(own, framework="numpy") as file:
            arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
            if (file.metadata() or {}).get("digest") != _digest(version, arrays):
                return None
        os.utime(path)  # it was used
        return arrays
    except (OSError, SafetensorError):
        return None


def write_arrays(kind: str, name: str, version: bytes, arrays: Arrays) -> None:
    """Cache arrays for the next run; a failure is only logged."""
    path = _path(kind, name)
    if path is None:
        return
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with atomic_file(path) as file:
            file.write(save(dict(arrays), metadata={"digest": _digest(version, arrays)}))
        _remove_oldest(path.parent)
    except OSError as error:
        log.info("could not cache %s for the next run: %s", kind, error)


def _path(kind: str, name: str) -> Path | None:
    folder = cache_folder()
    return None if folder is None else folder / kind / f"{name}.safetensors"


def _digest(version: bytes, arrays: Arrays) -> str:
    digest = hashlib.blake2b(version, digest_size=_DIGEST_BYTES)
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _remove_oldest(folder: Path) -> None:
    """Remove the oldest files beyond the folder's limit, including leftovers of killed writers."""
    states = [(path.stat(), path) for path in folder.glob("*.safetensors*")]
    total = 0
    for status, path in sorted(states, key=lambda found: -found[0].st_mtime_ns):
        total += status.st_size
        if total > MAX_FOLDER_BYTES:
            path.unlink(missing_ok=True)


def state_of_files(paths: Sequence[str], now_ns: int) -> bytes | None:
    """Return a fingerprint of these files by size, times and inode; any may be absent.

    None if a later change could go unnoticed: a file changed just now, or is not accessible.

    now_ns: the time before this call.
    """
    states = [_state(path, now_ns) for path in paths]
    if None in states:
        return None
    parts = [f"{path}\0{state}\0" for path, state in zip(paths, states, strict=True)]
    return "".join(parts).encode("utf-8", "surrogatepass")


def _state(path: str, now_ns: int) -> str | None:
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return "absent"
    except (OSError, ValueError):
        return None
    changed, modified = status.st_ctime_ns, status.st_mtime_ns
    # A camera or a copy may set any modification time, even a future one.
    if changed > now_ns - RECENT_NS or abs(now_ns - modified) < RECENT_NS:
        return None
    # The inode: a link may be switched to a file of the same size and time.
    return f"{status.st_size} {modified} {changed} {status.st_ino}"
