"""A dataset's new folder, complete or absent, and its YAML."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from utils.errors import DatasetError
from utils.files.yaml import yaml_text


def refuse_existing(path: Path, flag: str = "--out") -> None:
    """Raise DatasetError when there is something at the path of a new folder."""
    if os.path.lexists(path):
        raise DatasetError(f"{flag} {path} exists and is not written over; name a new folder")


@contextmanager
def new_folder(path: Path, flag: str = "--out") -> Iterator[Path]:
    """Yield a folder to fill; it becomes `path` when the block ends, or is removed if it fails.

    Args:
        flag: the one that named it, for messages.

    Raises:
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
            f"{flag} {path}: cannot be written, and nothing was left there: {error.strerror}; "
            "free some space, or name a folder that can be written to"
        ) from error


def dataset_yaml_text(entries: Mapping[str, str], class_names: Sequence[str]) -> str:
    """Return a dataset YAML that names an entry of its own folder for each split."""
    return yaml_text({"path": ".", **entries, "names": dict(enumerate(class_names))})
