"""Write files and folders atomically."""

import contextlib
import os
import secrets
import shutil
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO, TextIO

from duet.utils.errors import DatasetError
from duet.utils.system import files

LONGEST_ON_WINDOWS = 260 - len(".0123456789abcdef.tmp")  # unless it is set up for longer ones


def atomic_file(path: Path, synced: bool = True) -> AbstractContextManager[BinaryIO]:
    """Yield a file that replaces `path` when the block ends, and is removed if it fails.

    synced: whether it survives a power failure; that takes milliseconds, which one of thousands of
        files that can be made again is not worth.

    OSError: it cannot be written; the error names `path`.
    """
    return _opened(path, "wb", synced)


def atomic_text_file(path: Path, synced: bool = True) -> AbstractContextManager[TextIO]:
    """Like `atomic_file`, for UTF-8 text; line ends are written as given, as a CSV writer needs."""
    return _opened(path, "w", synced, encoding="utf-8", newline="")


def link_or_copy(source: Path, path: Path) -> None:
    """Hard-link a file atomically; copy it where hard links are not supported."""
    temporary = _temporary_name(path)
    try:
        os.link(source, temporary)
    except OSError:
        with atomic_file(path) as copy, open(source, "rb") as file:
            shutil.copyfileobj(file, copy)
    else:
        with naming(path, temporary):
            try:
                files.replace(temporary, path)
            finally:  # os.replace does nothing if both are links to the same file
                temporary.unlink(missing_ok=True)


def remove_unfinished(folder: Path) -> None:
    """Remove temporary files that killed writers left in a folder."""
    for path in folder.glob(".*.tmp"):
        with contextlib.suppress(IsADirectoryError):
            path.unlink(missing_ok=True)


@contextmanager
def _opened(path: Path, mode: str, synced: bool, **options: Any) -> Iterator[Any]:
    """Yield a temporary file in the folder of `path` that replaces it at the end."""
    temporary = _temporary_name(path)
    with naming(path, temporary):
        # Never open an existing file or link.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | files.NO_LINK | files.BINARY
        descriptor = os.open(temporary, flags, 0o666)
        try:
            with open(descriptor, mode, **options) as file:
                yield file
                file.flush()
                if synced:
                    os.fsync(descriptor)
            files.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def _temporary_name(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")


@contextmanager
def naming(path: Path, temporary: Path | None = None) -> Iterator[None]:
    """Make system errors name `path` instead of `temporary` or nothing."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename in (None, str(temporary or path)):
            raise OSError(error.errno, _reason(error, path), str(path)) from error
        raise


def _reason(error: OSError, path: Path) -> str | None:
    length = len(str(path.absolute()))
    if sys.platform != "win32" or length < LONGEST_ON_WINDOWS:
        return error.strerror
    return f"{error.strerror}; its path has {length} characters: use a folder nearer to the root"


def refuse_existing(path: Path, flag: str = "--out") -> None:
    if os.path.lexists(path):
        raise DatasetError(f"{flag} {path} already exists; choose a new folder")


@contextmanager
def new_folder(path: Path, flag: str = "--out") -> Iterator[Path]:
    """Yield a folder to fill; it becomes `path` when the block ends, and is removed on failure.

    flag: the flag that named it, for messages.

    DatasetError: `path` exists, or something cannot be written.
    """
    refuse_existing(path, flag)
    path = path.absolute()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent) as temporary:
            folder = Path(temporary) / path.name
            folder.mkdir()
            yield folder
            os.rename(folder, path)
    except OSError as error:
        raise DatasetError(
            f"{flag} {path}: cannot be written: {error.strerror}; nothing was left there; free "
            "some space, or choose a writable folder"
        ) from error
