"""Files that are complete or absent."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO


@contextmanager
def atomic_text_file(path: Path) -> Iterator[TextIO]:
    """Yield a UTF-8 file that replaces `path` when the block ends; it is removed if it fails."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def remove_unfinished(folder: Path) -> None:
    """Remove what killed writers left in a folder under temporary names."""
    for path in folder.glob(".*.tmp"):
        path.unlink(missing_ok=True)
