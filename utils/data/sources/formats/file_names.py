"""Files found by names that lack a suffix or have a folder too many, and lists of such names.

Before: `file_per_image.py`. After: the parser of a format.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Collection, Iterator
from pathlib import Path

from utils.data.image.limits import IMAGE_SUFFIXES
from utils.errors import DatasetError
from utils.files.regular import read_text

MAX_LIST_BYTES = 1 << 28  # millions of images
_FLAG = re.compile(r"\s+(-1|0|1)$")  # VOC's second column: whether a class is in the image


class FileIndex:
    """The files with some suffixes in a folder, and in the folders in it."""

    def __init__(self, folder: Path, suffixes: Collection[str]):
        self.folder = folder
        self.by_name: dict[str, Path] = {}  # by the path in the folder without suffix, sorted
        self._by_path: dict[str, Path] = {}  # likewise, with suffix
        self._by_base: dict[str, Path | None] = {}  # of those in inner folders; None: of several
        self._folders: set[str] = set()  # that hold some
        for inner in sorted(_files(folder, suffixes), key=lambda name: name.split("/")):
            path = folder / inner
            self._by_path[inner] = path
            self.by_name.setdefault(os.path.splitext(inner)[0], path)
            if "/" in inner:
                self._folders.add(_folder_in(inner))
                for name in {path.name, path.stem}:
                    self._by_base[name] = None if name in self._by_base else path

    @property
    def paths(self) -> Collection[Path]:
        """All files, sorted."""
        return self._by_path.values()

    def find(self, name: str, suffix: str = "") -> Path | None:
        """Return the file of a name, `suffix` behind it where there are several, or None."""
        return self.at(name, suffix) or self.near(name, suffix)

    def at(self, name: str, suffix: str = "") -> Path | None:
        """Return the file of a name with its folders, as `find`."""
        return self._by_path.get(name + suffix) or self._by_path.get(name) or self.by_name.get(name)

    def near(self, name: str, suffix: str = "") -> Path | None:
        """Return the only file with the last part of a name, if their folders may be the same.

        That is where one of them lies in no folder, or in a folder at the end of the other's.
        """
        base = base_name(name)
        inner = self._by_base.get(base + suffix) or self._by_base.get(base)
        found = self.at(base, suffix) or inner
        return found if found and self._may_be(found, _folder_in(name)) else None

    def _may_be(self, path: Path, named: str) -> bool:
        own = _folder_in(path.relative_to(self.folder).as_posix())
        if not own:
            return named not in self._folders
        return f"/{own}".endswith(f"/{named}" * bool(named)) or f"/{named}".endswith(f"/{own}")


def _folder_in(name: str) -> str:
    """Return the folder in a name, "" for none; of Windows too."""
    return posixpath.normpath(posixpath.dirname(name.replace("\\", "/"))).lstrip("./")


def _files(folder: Path, suffixes: Collection[str]) -> Iterator[str]:
    """Yield the paths of files in a folder, in no order; not "._a.xml", a Mac's."""
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        inner = os.path.relpath(place, folder)
        prefix = "" if inner == "." else inner.replace(os.sep, "/") + "/"
        for name in names:
            if os.path.splitext(name)[1].lower() in suffixes and not name.startswith("._"):
                yield prefix + name


def image_files(folder: Path) -> Iterator[Path]:
    """Yield the images in a folder and the folders in it; in no order."""
    return (folder / name for name in _files(folder, IMAGE_SUFFIXES))


def base_name(name: str) -> str:
    """Return a name without its folders, of Windows too."""
    return name.replace("\\", "/").rpartition("/")[2]


def without_image_suffix(name: str) -> str:
    """Return a name without the suffix of an image; "v1.2" has none."""
    stem, suffix = os.path.splitext(name)
    return stem if suffix.lower() in IMAGE_SUFFIXES else name


def read_names(path: Path, images: FileIndex) -> list[str]:
    """Return the names of a list of images, with or without suffix; not the column behind them.

    Raises:
        DatasetError: the list cannot be read.
    """
    try:
        lines = read_text(path, MAX_LIST_BYTES).removeprefix("\ufeff").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"{path}: a list of images is needed: {error!s:.300}") from error
    return [_name_in(line.strip(), images) for line in lines if line.strip()]


def _name_in(line: str, images: FileIndex) -> str:
    """Return the name on a line: all of it if there is such an image, as "cat 1"."""
    name = _FLAG.sub("", line)
    if name[0] == name[-1] == '"' and len(name) > 2:  # CVAT's, of a name with blanks
        name = name[1:-1]
    known = (line, name, without_image_suffix(name))
    return next((each for each in known if images.find(each)), name)
