"""Files that grow piece by piece and are complete after each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from utils.files.atomic import atomic_file, naming


class GrowingFile:
    """A file of pieces and an end, which is written again behind each new piece.

    A piece that cannot be written, or is interrupted, leaves the file as it was before.
    """

    def __init__(self, path: Path, file: BinaryIO, end: bytes) -> None:
        self._path, self._file, self._end = path, file, end
        self.length = 0  # bytes of the pieces
        self.add(b"")

    def add(self, piece: bytes) -> None:
        """Write a piece; OSError names the file."""
        with naming(self._path):
            try:
                self._replace_end(piece)
                self.length += len(piece)
            except BaseException:
                # Also on a full disk: it was there before, so there is room for it.
                self._replace_end(b"")
                raise

    def _replace_end(self, piece: bytes) -> None:
        self._file.seek(self.length)
        rest = memoryview(piece + self._end)
        while rest:
            rest = rest[self._file.write(rest) :]
        self._file.truncate()


@contextmanager
def growing_file(path: Path, end: bytes = b"") -> Iterator[GrowingFile]:
    """Yield a file that takes the place of `path` when the block ends.

    Args:
        end: what closes the file, as a bracket.

    Raises:
        OSError: it cannot be written; the error names it.
    """
    with atomic_file(path, buffering=0) as file:
        yield GrowingFile(path, file, end)
