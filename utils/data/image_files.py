"""Folders and list files -> the paths of images.

Before: `dataset_yaml`. After: `labels.scan_samples`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from utils.errors import UserError

IMAGE_SUFFIXES = frozenset({".bmp", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"})


class DatasetError(UserError):
    """A dataset that cannot be used as it is; the text says what to change."""


def list_images(entries: Sequence[Path]) -> list[Path]:
    """The image files of folders (searched recursively, sorted) and list files (in their order).

    Relative lines of a list file start at the list's own folder. Whether a file exists and can
    be read is for `labels.scan_samples` to find out.

    Raises:
        DatasetError: an entry cannot be read, or holds no image.
    """
    return [image for entry in entries for image in _images_of(entry)]


def _images_of(entry: Path) -> list[Path]:
    images = sorted(_search(entry)) if entry.is_dir() else _read_list(entry)
    if not images:
        raise DatasetError(no_images_text(entry))
    return images


def has_images(entry: Path) -> bool:
    """Whether an entry is a list file, or a folder with an image; stops at the first one."""
    return entry.is_file() or any(True for _ in _search(entry))


def no_images_text(entry: Path) -> str:
    """The text for an entry without images."""
    if entry.is_file():
        return f"{entry} lists no image; write the path of one image on each line"
    suffixes = " ".join(sorted(IMAGE_SUFFIXES))
    return f"{entry} holds no image; put files there that end in {suffixes}"


def _search(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.suffix.lower() in IMAGE_SUFFIXES)


def _read_list(path: Path) -> list[Path]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(
            f"{path}: a folder of images, or a text file that lists them, is needed: {error}"
        ) from error
    return [path.parent / line.strip() for line in lines if line.strip()]
