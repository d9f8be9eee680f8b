"""Image files by the names that an annotation file has for them.

Before: `folders.py` finds the folder. After: the reader of a format.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path, PurePosixPath

from backend.words import count
from utils.data.sources.formats.folders import image_files


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
        """Return the file of an image, and "", or what is the trouble with it.

        Args:
            names: what it may be called, the likeliest first, with folders or without; the last
                one says where it should be if there is no such file.
        """
        trouble: tuple[Path, str] | None = None
        for name in names:
            if files := self._files.get(name.name):
                alike = self._of_same_folders(files, name)
                if len(alike) == 1:
                    return alike[0], ""
                trouble = trouble or (files[0], _ambiguous(files))
        parts = [part for part in name.parts if part not in ("/", "..")]
        return trouble or (self._folder.joinpath(*parts), "")

    def _of_same_folders(self, files: list[Path], name: PurePosixPath) -> list[Path]:
        """Return the only file of that name, or those in folders that are called alike."""
        if (exact := self._folder / name) in files:
            return [exact]
        for depth in range(2, len(name.parts) + 1):
            if len(files) == 1:
                break
            part = slice(-depth, 1 - depth)
            files = [file for file in files if file.parts[part] == name.parts[part]]
        return files


def _ambiguous(files: list[Path]) -> str:
    return (
        f"{count(len(files), 'file')} have its name, {files[0]} and {files[1]} among them; "
        "rename one, or put them into folders as the labelling tool has them"
    )
