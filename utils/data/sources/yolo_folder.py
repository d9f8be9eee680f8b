"""A folder of images and YOLO label files without a dataset YAML, as labelling tools leave it.

Source: the pages of CVAT's format "YOLO 1.1", of labelImg, of Label Studio's YOLO export and of
Darknet (pjreddie.com/darknet/yolo).
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from utils.data.sources.formats.names import split_folders, split_of
from utils.data.sources.image_files import has_images
from utils.errors import DatasetError, brief
from utils.files.regular import read_text

CLASS_FILES = ("classes.txt", "obj.names", "_darknet.labels")  # labelImg's, CVAT's, Roboflow's
DARKNET_FILE = "obj.data"
MAX_NAMES_BYTES = 1 << 22
MAX_PATH_LENGTH = 1000  # characters
_SETTING = re.compile(r"\s*(\w+)\s*=\s*(.*?)\s*")


class YoloFolder(NamedTuple):
    """Images with label files, and what the classes are called."""

    splits: Mapping[str, Sequence[Path]]  # folders, or lists of images; "": not divided
    class_names: tuple[str, ...]


def find_yolo(folder: Path) -> YoloFolder | None:
    """Return the images of a folder in which a file names the classes; None without one.

    Raises:
        DatasetError: such a file cannot be used, or two of them differ.
    """
    for place in (folder, folder / "data"):
        if (place / DARKNET_FILE).is_file():
            return _of_darknet(place / DARKNET_FILE)
    if class_names := _common_names(list(_class_files(folder))):
        return YoloFolder(_split_places(folder), class_names)
    return None


def _of_darknet(file: Path) -> YoloFolder:
    """Return what Darknet's file of settings names: `train = data/train.txt` and the like."""
    lines = map(_SETTING.fullmatch, _lines(file))
    settings = {match[1]: match[2] for match in lines if match}
    if "names" not in settings:
        raise DatasetError(f"{file}: names no file of class names; a line 'names = obj.names' does")
    named = {split_of(name): value for name, value in settings.items()}
    splits = {split: [_place_of(file, value)] for split, value in named.items() if split}
    names = _place_of(file, settings["names"])
    if not (class_names := _class_names(names)):
        raise DatasetError(f"{names}: has no class name; write one on each line")
    return YoloFolder(splits, class_names)


def _place_of(file: Path, value: str) -> Path:
    """Return a path that Darknet's settings name: relative to them, or to the folder above.

    CVAT writes "data/train.txt" for a file beside them.
    """
    if len(value) > MAX_PATH_LENGTH:
        raise DatasetError(f"{file}: {brief(value)} is no path; correct the line")
    folder = file.parent
    places = [folder / value, folder.parent / value, folder / value.removeprefix("data/")]
    return next((place for place in places if os.path.exists(place)), places[0])


def _class_files(folder: Path) -> Iterator[Path]:
    """Yield the files of class names: those of the folder, or beside the labels or images."""
    inner = [folder / name for name in ("labels", "images")]
    parts = [part for place in (folder, *inner) if place.is_dir() for part in split_folders(place)]
    for place in (folder, *inner, *parts, *(part / "labels" for part in parts)):
        yield from (place / name for name in CLASS_FILES if (place / name).is_file())


def _common_names(files: Sequence[Path]) -> tuple[str, ...]:
    """Return the class names of files that agree: each has the first of the longest.

    labelImg writes one beside each folder of labels, with the classes that it knew then.
    """
    lists = {file: _class_names(file) for file in files}
    longest = max(files, key=lambda file: len(lists[file]), default=None)
    for file, names in lists.items():
        if longest and names != lists[longest][: len(names)]:
            raise DatasetError(
                f"{file} and {longest} name other classes, or in another order; find out which of "
                "them the label files were written with, and make them equal"
            )
    return lists[longest] if longest else ()


def _class_names(file: Path) -> tuple[str, ...]:
    names = [line.strip() for line in _lines(file)]
    while names and not names[-1]:
        names.pop()
    if not all(names):
        number = names.index("") + 1
        raise DatasetError(f"{file}: line {number} is blank; a class name on each line is needed")
    if repeated := [name for name, times in Counter(names).items() if times > 1]:
        raise DatasetError(f"{file}: has {brief(repeated)} more than once; each must differ")
    return tuple(names)


def _lines(file: Path) -> list[str]:
    try:
        return read_text(file, MAX_NAMES_BYTES).removeprefix("\ufeff").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else f"not UTF-8: {error!s:.200}"
        raise DatasetError(f"{file}: {reason}") from error


def _split_places(folder: Path) -> Mapping[str, Sequence[Path]]:
    """Return the folders of images of each split; of all images where they are not divided."""
    splits: dict[str, list[Path]] = {}
    for place in (folder, folder / "images"):
        for part in split_folders(place) if place.is_dir() else ():
            inner = part / "images"
            if has_images(part):
                splits.setdefault(split_of(part.name), []).append(inner if inner.is_dir() else part)
    whole = folder / "images"
    return splits or {"": [whole if whole.is_dir() and has_images(whole) else folder]}
