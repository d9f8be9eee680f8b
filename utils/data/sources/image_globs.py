"""Patterns of paths in a dataset YAML, as `images/*/train` -> what they stand for.

Before: `dataset_yaml.py`. After: `image_files.py`.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from utils.data.image.limits import IMAGE_SUFFIXES
from utils.data.records.layout import SUFFIX as RECORD_SUFFIX

MAX_MATCHES = 1_000_000
_WILD = frozenset("*?[")
_FILES = (*IMAGE_SUFFIXES, RECORD_SUFFIX, ".txt")


def is_glob(value: str) -> bool:
    """Return whether a path has a "*", "?" or "["."""
    return not _WILD.isdisjoint(value)


def expand_glob(root: Path, value: str) -> list[Path]:
    """Return the folders, images, lists and record files that a pattern stands for, sorted.

    `**` stands for any number of folders; links to folders are not followed then.

    Raises:
        ValueError: the pattern has `**` more than once, or stands for more than a million.
    """
    parts = (root / value).parts
    first = next(index for index, part in enumerate(parts) if is_glob(part))
    base, pattern = Path(*parts[:first]), parts[first:]
    if pattern.count("**") > 1:
        raise ValueError("** is accepted once")
    found = list(islice(base.glob("/".join(pattern)), MAX_MATCHES + 1))
    if len(found) > MAX_MATCHES:
        raise ValueError(f"more than {MAX_MATCHES:,} paths are meant; name their folders")
    folders = {path for path in found if path.is_dir()}
    files = {path for path in found if path.suffix.lower() in _FILES}
    # What lies in a folder that is meant is meant with it.
    return sorted(path for path in folders | files if folders.isdisjoint(path.parents))
