"""Names of files and folders of results: safe, short enough, and no two the same.

Before: the names of sources and classes. After: `run_files.py`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

# A file system takes 255 bytes. A name has a number and a suffix too, and while the file is being
# written 22 bytes more (`utils/files/atomic.py`).
MAX_BYTES = 180
_SEPARATORS = frozenset('/\\:*?"<>|')  # of some system's paths, or patterns


class Names:
    """Names, each given only once."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._numbers: dict[str, int] = {}  # the last one behind a name

    def take(self, name: str) -> str:
        """Return the name; NAME-2, NAME-3, ... if it is taken."""
        found = name
        while found in self._taken:
            self._numbers[name] = self._numbers.get(name, 1) + 1
            found = f"{name}-{self._numbers[name]}"
        self._taken.add(found)
        return found


class Stems:
    """The file names of sources, all different.

    The frames of a video NAME have NAME_1, NAME_2, ..., which images may be called too.
    """

    def __init__(self) -> None:
        self._names = Names()
        self._videos: set[str] = set()
        self._like_frames: set[str] = set()  # NAME of the images called NAME_1 and so on

    def take_for_image(self, stem: str) -> str:
        """Return the stem, or NAME-2 and so on, for an image."""
        while True:
            found = self._names.take(stem)
            video = _video_of_frame(found)
            if video not in self._videos:
                self._like_frames.add(video)
                return found

    def take_for_video(self, stem: str) -> str:
        """Return the stem, or NAME-2 and so on, for a video."""
        while (found := self._names.take(stem)) in self._like_frames:
            pass
        self._videos.add(found)
        return found


def _video_of_frame(stem: str) -> str:
    """Return NAME of NAME_12; "" for a stem that is not like a frame's."""
    name, _, number = stem.rpartition("_")
    return name if number.isdecimal() else ""


class SourceName(NamedTuple):
    """What a source is called in the folder of results."""

    stem: str
    suffix: str  # ".jpg"; "" where the source is no file


def name_of_source(source: Path | str) -> SourceName:
    """Return the name of a file, or one made of what a camera, stream or image is called.

    Of a URL it has neither user, password nor query.
    """
    if isinstance(source, str) and "://" in source:
        return SourceName(safe_name(_without_secrets(source), otherwise="stream"), "")
    name = source.name if isinstance(source, Path) else safe_name(source, otherwise="image")
    suffix = Path(name).suffix
    return SourceName(cut(name.removesuffix(suffix)), cut(suffix))


def _without_secrets(url: str) -> str:
    """Return host, port and path of a URL, with underscores between them.

    All before the last "@" may be a password, which may hold any other mark too.
    """
    address = url.partition("://")[2].rpartition("@")[2]
    return re.split(r"[?#]", address)[0].strip("/").replace("/", "_")


def safe_name(text: str, otherwise: str) -> str:
    """Return a text as the name of one folder or file.

    Letters of all languages stay. What does not show, or has a meaning in paths, becomes "_".

    Args:
        otherwise: the name if no character of the text is left.
    """
    shown = "".join(x if x.isprintable() and x not in _SEPARATORS else "_" for x in text)
    return cut(shown).strip(" .") or otherwise


def cut(text: str) -> str:
    """Return as many characters as fit into `MAX_BYTES`."""
    text = text[:MAX_BYTES]
    while len(text.encode("utf-8", "surrogateescape")) > MAX_BYTES:
        text = text[:-1]
    return text
