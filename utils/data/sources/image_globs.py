"""Patterns of paths in a dataset YAML, as `images/*/train` -> what they stand for.

Before: `dataset_yaml.py`. After: `image_files.py`.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from backend.words import count
from utils.data.image.limits import IMAGE_SUFFIXES
from utils.data.records.layout import SUFFIX as RECORD_SUFFIX

MOST_SEEN = 10_000_000  # files and folders that are looked at for a pattern
_WILD = frozenset("*?[")
_FILES = (*IMAGE_SUFFIXES, RECORD_SUFFIX, ".txt")


def is_glob(value: str) -> bool:
    """Return whether a path has a "*", "?" or "["."""
    return not _WILD.isdisjoint(value)


def expand_glob(root: Path, value: str) -> list[Path]:
    """Return the folders, images, lists and record files that a pattern stands for, sorted.

    `*`, `?` and `[...]` stand for parts of a name that does not begin with a dot; `**` stands for
    any number of such folders, but for those behind links.

    Raises:
        ValueError: the pattern has `**` more than once, or too much is looked at for it.
        OSError: a folder on the way cannot be read.
    """
    parts = (root / value).parts
    first = next(index for index, part in enumerate(parts) if is_glob(part))
    if parts.count("**") > 1:
        raise ValueError("** is accepted once")
    found: Iterable[Path] = [Path(*parts[:first])]
    seen = _Seen()
    for part in parts[first:]:
        found = seen.step(found, part)
    folders, files = set(), set()
    for path in found:
        if path.is_dir():
            folders.add(path)
        elif path.suffix.lower() in _FILES:
            files.add(path)
    # What lies in a folder that is meant is meant with it.
    return sorted(path for path in folders | files if folders.isdisjoint(path.parents))


class _Seen:
    """Counts what is looked at, step by step down the parts of a pattern."""

    def __init__(self) -> None:
        self._number = 0

    def step(self, folders: Iterable[Path], part: str) -> Iterator[Path]:
        """Yield what a part of a pattern stands for in each of the folders."""
        if part == "**":
            return (inner for folder in folders for inner in self._below(folder))
        if not is_glob(part):
            return (path for folder in folders if (path := folder / part).exists())
        matches = re.compile(fnmatch.translate(part)).match
        return (
            folder / entry.name
            for folder in folders
            for entry in self._entries(folder)
            if matches(entry.name) and (part[0] == "." or entry.name[0] != ".")
        )

    def _below(self, folder: Path) -> Iterator[Path]:
        waiting = [folder] if folder.is_dir() else []
        while waiting:
            yield (here := waiting.pop())
            waiting += [
                here / entry.name
                for entry in self._entries(here)
                if entry.is_dir(follow_symlinks=False) and entry.name[0] != "."
            ]

    def _entries(self, folder: Path) -> list[os.DirEntry[str]]:
        if not folder.is_dir():
            return []
        with os.scandir(folder) as entries:
            found = list(entries)
        self._number += len(found)
        if self._number > MOST_SEEN:
            text = f"more than {count(MOST_SEEN, 'file')} to look at; name their folders"
            raise ValueError(text)
        return found
