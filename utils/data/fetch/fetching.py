"""One file of a list, from wherever it is to where it belongs: fetched, compared, unpacked.

Before: `lists.py`. After: `download.py`, `unpacking.py`; then a person trains on it.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from backend.words import count
from utils.data.fetch.download import download, hash_of, require_space, size_of
from utils.data.fetch.lists import PART, UNPACKED, Item
from utils.data.fetch.unpacking import unpack
from utils.errors import UserError
from utils.files.atomic import atomic_text_file
from utils.files.json import complete, read_json

_LOCK = ".fetch.lock"
_KINDS = {"url": str, "sha256": str, "files": int, "unpack": str, "first": str}
_MOST_BYTES = 1 << 16


def fetch(item: Item, folder: Path) -> str:
    """Bring a file into a folder, unpacked if the list says so; return a text of what was done.

    What is there already, with the right hash, is not fetched.

    Raises:
        UserError: another file is in its place, or as `download` and `unpack`.
    """
    if item.unpack is not None and (digest := _unpacked(item, folder)):
        _passing(item, folder).unlink(missing_ok=True)
        return f"{item.name}: unpacked already{_pin(item, digest)}"
    target = _target(item, folder)
    target.parent.mkdir(parents=True, exist_ok=True)
    digest, done = _bring(item, target)
    if item.unpack is None:
        return f"{item.name}: {done}{_pin(item, digest)}"
    num_files, first = unpack(target, folder / item.unpack)
    os.sync()  # the note below must not outlive the files in a failure of power
    note = {"url": item.url, "sha256": digest, "files": num_files}
    with atomic_text_file(_note(item, folder)) as file:
        json.dump({**note, "unpack": item.unpack, "first": first}, file)
    _passing(item, folder).unlink(missing_ok=True)
    return f"{item.name}: {done}, {count(num_files, 'file')} unpacked{_pin(item, digest)}"


def require_space_for(items: Sequence[Item], folder: Path) -> None:
    """Raise UserError unless a folder's disk has room for what is not there yet of some files.

    What is in an archive takes about its size, and one archive at a time lies beside that.
    """
    missing = [item for item in items if not _is_there(item, folder)]
    targets = (_target(item, folder) for item in missing)
    parts = sum(size_of(target.with_name(target.name + PART)) for target in targets)
    archive = max((item.size or 0 for item in missing if item.unpack is not None), default=0)
    total = sum(item.size or 0 for item in missing)
    require_space(folder, max(0, total + archive - parts), count(len(missing), "file"))


def _is_there(item: Item, folder: Path) -> bool:
    return os.path.lexists(_target(item, folder)) or bool(_unpacked(item, folder))


def _target(item: Item, folder: Path) -> Path:
    """Return where a file is, or is to come."""
    target = folder / item.path
    if item.unpack is None or os.path.lexists(target):
        return target
    return _passing(item, folder)


def _passing(item: Item, folder: Path) -> Path:
    """Return where an archive lies between its fetching and its unpacking.

    No list gives such a name: what lies there was fetched, and may be removed. An archive that
    somebody has put at the path of the list stays.
    """
    return (folder / item.path).with_name(f".{item.name}")


def _bring(item: Item, target: Path) -> tuple[str, str]:
    """Return the hash of the file at `target` and how it came there."""
    if not os.path.lexists(target):
        return download(item, target), "fetched"
    digest = hash_of(target)
    if item.sha256 not in (None, digest):
        raise UserError(
            f"{target} is there already: its SHA-256 is {digest}, and the list says {item.sha256}; "
            "move it away, or name another folder: --out"
        )
    return digest, "there already"


def _note(item: Item, folder: Path) -> Path:
    return folder / (item.path + UNPACKED)


def _unpacked(item: Item, folder: Path) -> str:
    """Return the hash of the archive that was unpacked and is still there; "" if there is none."""
    try:
        note = complete(read_json(_note(item, folder), _MOST_BYTES), _KINDS)
        is_there = _has_files(folder / note["unpack"] / note["first"])
    except (OSError, ValueError):
        return ""
    digest: str = note["sha256"]
    same = note["unpack"] == item.unpack and item.sha256 in (None, digest)
    return digest if same and is_there else ""


def _has_files(folder: Path) -> bool:
    return any(not path.name.endswith(UNPACKED) for path in folder.iterdir())


def _pin(item: Item, digest: str) -> str:
    """Return what to write into a list that has no hash."""
    if item.sha256 is not None:
        return ""
    return f"; the list has no hash of it: to pin it, write sha256: '{digest}' into the list"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes from fetching into a folder until the block ends.

    Raises:
        UserError: another one does, or the folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(folder / _LOCK, flags, 0o666)
    except OSError as error:
        raise UserError(f"--out {folder}: cannot be written: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise UserError(
            f"--out {folder}: another process fetches into it; wait until it ends"
        ) from None
    finally:
        os.close(descriptor)
