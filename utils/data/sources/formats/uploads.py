"""Image files by what a labelling tool calls them, which has its own copy somewhere else.

Before: `label_studio.py`. After: the same.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from urllib.parse import unquote

from backend.words import count
from utils.data.sources.formats.folders import image_files
from utils.errors import brief

_UPLOADED = re.compile(r"^[0-9a-f]{8}-(?=.)")  # Label Studio puts it before a file's name
_NOT_KEPT = re.compile(r"[^-\w.]")  # and removes these characters
MAX_LENGTH = 4096  # characters of a source; an image inside the export is far longer


class Uploads:
    """The image files in a folder and the folders in it."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._by_name: defaultdict[str, list[Path]] = defaultdict(list)
        for path in sorted(image_files(folder)):
            for name in {path.name, _as_uploaded(path.name)}:
                self._by_name[name].append(path)

    def find(self, source: str) -> tuple[Path, str]:
        """Return the file of an image, and "", or what is the trouble with it.

        Args:
            source: "/data/upload/1/0123abcd-name.jpg", "/data/local-files/?d=folder/name.jpg",
                "s3://bucket/name.jpg", "https://host/name.jpg?X-Amz=..." and the like.
        """
        if not source or len(source) > MAX_LENGTH or source.startswith("data:"):
            text = brief(source) if source else "nothing"
            return self._folder / "?", f"its image is {text}; the name of a file is needed"
        for place in _places(source):
            if found := self._by_name.get(place.name) or self._by_name.get(_plain(place.name)):
                return _same_end(found, place)
        return self._folder / (_plain(place.name) or "?"), ""


def _same_end(files: list[Path], place: PurePosixPath) -> tuple[Path, str]:
    """Return the file whose folders are named like those of a place, if it is the only one."""
    for depth in range(1, len(place.parts) + 1):
        same = [file for file in files if file.parts[-depth:-1] == place.parts[-depth:-1]]
        if len(same) == 1:
            return same[0], ""
        if not same:
            break
    if len(files) == 1:
        return files[0], ""
    return files[0], (
        f"{count(len(files), 'file')} have its name, {files[0]} and {files[1]} among them; "
        "rename one, or put them into the folders that Label Studio has"
    )


def _places(source: str) -> Iterator[PurePosixPath]:
    """Yield what a source may mean, the likeliest first; a name may have any character."""
    text = (source.partition("?d=")[2] or source).replace("\\", "/")
    for part in (text, text.partition("?")[0]):
        for form in (part, unquote(part)):
            yield PurePosixPath(form.replace("\0", ""))


def _plain(name: str) -> str:
    """Return a name without what the upload put before it."""
    return _UPLOADED.sub("", name)


def _as_uploaded(name: str) -> str:
    """Return what an uploaded file is called, but for what is put before it."""
    return _NOT_KEPT.sub("", name.strip().replace(" ", "_"))
