"""Texts and paths by the million, each kind in a few arrays instead of one object per text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from utils.polygons import starts_of

# A name that is no UTF-8, or that another program wrote with half a surrogate pair, comes back.
_ENCODING = "utf-8", "surrogatepass"


@dataclass(frozen=True, eq=False)  # arrays have no single truth value to compare by
class Texts:
    """N texts in UTF-8, one behind the other."""

    content: np.ndarray  # (B,) uint8
    starts: np.ndarray  # (N + 1,) int64: text i is content[starts[i] : starts[i + 1]]

    @staticmethod
    def of(texts: Iterable[str]) -> Texts:
        """Return these texts, which are read once."""
        content, lengths = bytearray(), []
        for text in texts:
            encoded = text.encode(*_ENCODING)
            content += encoded
            lengths.append(len(encoded))
        return Texts(np.frombuffer(bytes(content), np.uint8), starts_of(np.array(lengths)))

    @property
    def lengths(self) -> np.ndarray:
        """The bytes of each text, (N,) int64."""
        return np.diff(self.starts)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, index: int) -> str:
        place = range(len(self))[index]
        first, end = self.starts[place : place + 2].tolist()
        return self.content[first:end].tobytes().decode(*_ENCODING)

    def __iter__(self) -> Iterator[str]:
        content = self.content.tobytes()
        return (content[a:b].decode(*_ENCODING) for a, b in pairwise(self.starts.tolist()))

    def select(self, indices: np.ndarray) -> Texts:
        """Return the texts of some indices, in any order."""
        starts = starts_of(self.lengths[indices])
        return Texts(self.content[rows_of(self.starts, indices)], starts)


def rows_of(starts: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Return the rows starts[i] up to starts[i + 1] of each index i, one behind the other."""
    counts = np.diff(starts)[indices]
    own = starts_of(counts)
    return np.arange(own[-1]) + np.repeat(starts[indices] - own[:-1], counts)


@dataclass(frozen=True, eq=False)
class Paths:
    """N paths: the name of each file, and its folder among those that occur."""

    folders: Texts  # each once, with its last slash
    folder_of: np.ndarray  # (N,) int32, into the folders
    names: Texts

    @staticmethod
    def of(paths: Iterable[Path]) -> Paths:
        """Return these paths, which are read once."""
        numbers: dict[str, int] = {}
        folder_of: list[int] = []

        def names() -> Iterable[str]:
            for path in paths:
                folder, slash, name = str(path).rpartition("/")
                folder_of.append(numbers.setdefault(folder + slash, len(numbers)))
                yield name

        found = Texts.of(names())
        return Paths(Texts.of(numbers), np.array(folder_of, np.int32), found)

    def __len__(self) -> int:
        return len(self.folder_of)

    def __getitem__(self, index: int) -> Path:
        return Path(self.folders[int(self.folder_of[index])] + self.names[index])

    def __iter__(self) -> Iterator[Path]:
        folders = list(self.folders)
        pairs = zip(self.folder_of.tolist(), self.names, strict=True)
        return (Path(folders[folder] + name) for folder, name in pairs)

    def select(self, indices: np.ndarray) -> Paths:
        """Return the paths of some indices, in any order."""
        return Paths(self.folders, self.folder_of[indices], self.names.select(indices))
