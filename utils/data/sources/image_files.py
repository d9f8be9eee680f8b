"""Folders, list files and record files -> images."""

from __future__ import annotations

import codecs
import os
from collections.abc import Sequence
from pathlib import Path

from duet.utils.data.sources.formats.names import search_files
from duet.utils.data.sources.image_source import ImageSource, record_kinds
from duet.utils.errors import DatasetError
from duet.utils.image_limits import IMAGE_SUFFIXES
from duet.utils.regular_files import read_text_bytes

MAX_LIST_BYTES = 1 << 28  # millions of images


def list_images(entries: Sequence[Path]) -> list[Path | ImageSource]:
    """Return the images of folders (searched recursively, sorted) and list files (in their order).

    Relative lines of a list file start at the list's own folder, or where its first line is found.
    `labels.scan_samples` finds out whether a file exists and can be read. A record
    file, or a folder of record files, gives the images in them. An image stands for itself.

    Raises:
        DatasetError: an entry cannot be read, or holds no image, or images beside record files.
    """
    return [image for entry in entries for image in _images_of(entry)]


def _images_of(entry: Path) -> Sequence[Path | ImageSource]:
    images: Sequence[Path | ImageSource]
    if entry.suffix.lower() in IMAGE_SUFFIXES and entry.is_file():
        return [entry]
    if record_files := _record_files(entry):
        if image := next(search_files(entry), None):
            raise DatasetError(
                f"{entry} holds record files and also images, {image} among them; move one of the "
                "two away, or name the record files one by one"
            )
        images = [x for path in record_files for x in record_kinds()[path.suffix].images(path)]
    else:
        images = sorted_images(entry) if entry.is_dir() else _read_list(entry)
    if not images:
        raise DatasetError(no_images_text(entry))
    return images


def has_images(entry: Path) -> bool:
    """Return whether an entry is a file, or a folder with an image or a record file."""
    return entry.is_file() or any(search_files(entry)) or bool(_record_files(entry))


def no_images_text(entry: Path) -> str:
    """Return the error text for an entry without images."""
    if entry.is_file():
        return f"{entry} has no image; a list has the path of one on each line"
    if not entry.is_dir():
        return f"{entry} is no folder and no file; name a folder of images, or a list of them"
    records = " or ".join(record_kinds())
    kinds = f"images there ({' '.join(IMAGE_SUFFIXES)}), or record files ({records})"
    return f"{entry} holds no image; put {kinds}"


def _record_files(entry: Path) -> list[Path]:
    """Return the record files that a dataset YAML's entry names: one, or a folder's by name."""
    kinds = record_kinds()
    files = (
        [path for kind in kinds for path in entry.glob(f"*{kind}")] if entry.is_dir() else [entry]
    )
    return sorted(path for path in files if path.suffix in kinds and path.is_file())


def sorted_images(folder: Path) -> list[Path]:
    """Return the images in a folder, in the order of their paths part by part."""
    # Strings: comparing Paths takes ten times as long.
    found = sorted(search_files(folder), key=lambda path: path.replace("/", "\0"))
    return list(map(Path, found))


def start_of(file: Path, name: str) -> tuple[Path, str]:
    """Return the folder where a name in a file starts, and what is left out at its beginning.

    A relative name starts at the file or, as Darknet's do, at the folder that `data` lies in, even
    if CVAT has written the file into another; or at the current folder.
    """
    beside = file.parent, ""
    starts = (beside, (file.parent.parent, ""), (file.parent, "data/"), (Path(), ""))
    found = (way for way in starts if os.path.exists(way[0] / name.removeprefix(way[1])))
    return next(found, beside)


def _read_list(path: Path) -> list[Path]:
    """Return the images on the lines of a list, which need not be UTF-8 if there is such a file."""
    images: list[Path] = []
    try:
        lines = read_text_bytes(path, MAX_LIST_BYTES).removeprefix(codecs.BOM_UTF8).splitlines()
        for line in filter(None, map(bytes.strip, lines)):
            name = os.fsdecode(line)
            if not images:  # the first line gives the start of all paths
                folder, prefix = start_of(path, name)
            images.append(folder / name.removeprefix(prefix))
            if not images[-1].exists():
                line.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(
            f"{path}: a folder of images, a text file that lists them, or a record file is "
            f"needed: {error!s:.300}"
        ) from error
    return images
