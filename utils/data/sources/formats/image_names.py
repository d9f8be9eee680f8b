"""Image files by the names that an annotation file, or the list of a split, has for them.

Before: `folders.py` finds the folder. After: the reader of a format.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path, PurePosixPath

from backend.words import count
from utils.data.image.limits import IMAGE_SUFFIXES
from utils.data.sources.formats.file_names import FileIndex, image_files, read_names
from utils.errors import DatasetError, brief


class ImageNames:
    """The image files in a folder and the folders in it; no other file is ever found.

    Args:
        alias: another name by which a file of some name may be asked for.
    """

    def __init__(self, folder: Path, alias: Callable[[str], str] = str):
        self._folder = folder
        self._files: defaultdict[str, list[Path]] = defaultdict(list)
        for path in sorted(image_files(folder)):
            for name in {path.name, alias(path.name)}:
                self._files[name].append(path)

    def find(self, names: Iterable[PurePosixPath]) -> tuple[Path, str]:
        """Return the file of an image, and "", or a file of its name and what is wrong.

        The folders of a file and of a name are the same, as far as both have some: the labels of
        an image that is absent are never those of another one.

        Args:
            names: what it may be called, the likeliest first, with folders or without; the last
                one says where it should be if there is no such file.
        """
        trouble: tuple[Path, str] | None = None
        for name in names:
            folders = _folders_of(name)
            if files := self._fitting(self._files.get(name.name, ()), folders):
                if len(files) == 1:
                    return files[0], ""
                trouble = trouble or (files[0], ambiguous(files))
        return trouble or (self._folder.joinpath(*folders, name.name), "")

    def _fitting(self, files: Sequence[Path], folders: Sequence[str]) -> Sequence[Path]:
        """Return the files whose folders fit; of several those that have most in common."""
        exact = self._folder.joinpath(*folders)
        if here := [file for file in files if file.parent == exact]:
            return here
        shared = ((file, self._shared(file, folders)) for file in files)
        fitting = {file: number for file, number in shared if number >= 0}
        most = max(fitting.values(), default=0)
        if most == 0 and folders and len(files) > 1:  # folders tell them apart: it is another one
            return []
        return [file for file, number in fitting.items() if number == most]

    def _shared(self, file: Path, folders: Sequence[str]) -> int:
        """Return how many folders a file and a name share, counted from the end; -1: they differ.

        They differ if both have folders and these are not the same.
        """
        own = file.relative_to(self._folder).parts[-2::-1]
        pairs = list(zip(own, reversed(folders), strict=False))
        return len(pairs) if all(one == other for one, other in pairs) else -1


def _folders_of(name: PurePosixPath) -> Sequence[str]:
    return [part for part in name.parts[:-1] if part not in ("/", "//", "..")]


def ambiguous(files: Sequence[Path]) -> str:
    """Return why it is not known which of several files an image is."""
    return (
        f"{count(len(files), 'file')} have its name, {files[0]} and {files[1]} among them; "
        "rename one, or put them into folders as the labelling tool has them"
    )


def listed_in(image_list: Path | None, folder: Path) -> Callable[[Path], bool]:
    """Return a function: is an image of a folder in the list? All are if there is no list.

    A line of the list is a name with or without folders, and with or without its suffix.

    Raises:
        DatasetError: the list cannot be read, or a line may be several images.
    """
    if image_list is None:
        return lambda path: True
    images = ImageNames(folder, lambda name: PurePosixPath(name).stem)
    listed: set[Path] = set()
    for name in read_names(image_list, FileIndex(folder, IMAGE_SUFFIXES)):
        path, trouble = images.find([PurePosixPath(name.replace("\\", "/"))])
        if trouble:
            raise DatasetError(f"{image_list}: {brief(name)}: {trouble}")
        listed.add(path)
    return lambda path: path in listed or path.parent / path.stem in listed
