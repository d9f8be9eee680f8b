"""Names of result files: safe, short enough, and no two the same."""

from __future__ import annotations

import re
from pathlib import Path

# A file system takes 255 bytes. A name has a number and a suffix too, and while the file is being
# written 22 bytes more (`utils/atomic_files.py`).
MAX_BYTES = 180
_SEPARATORS = frozenset('/\\:*?"<>|')  # of some system's paths, or patterns


class Names:
    """Names, each given only once.

    The frames of a video NAME have NAME_1, NAME_2, ..., which are not given to others either.
    """

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._numbers: dict[str, int] = {}  # the last one behind a name
        self._videos: set[str] = set()
        self._like_frames: set[str] = set()  # NAME of those taken that are called NAME_1 and so on

    def take(self, name: str, is_video: bool = False) -> str:
        """Return the name; NAME-2, NAME-3, ... if it is taken, for itself or for a frame."""
        found = name
        while self._is_taken(found, is_video):
            self._numbers[name] = self._numbers.get(name, 1) + 1
            found = f"{name}-{self._numbers[name]}"
        self._taken.add(found)
        if is_video:
            self._videos.add(found)
        else:
            self._like_frames.add(_video_of_frame(found))
        return found

    def _is_taken(self, name: str, is_video: bool) -> bool:
        is_frame = name in self._like_frames if is_video else _video_of_frame(name) in self._videos
        return name in self._taken or is_frame


def _video_of_frame(stem: str) -> str:
    """Return NAME of NAME_12; "" for a stem that is not like a frame's."""
    name, _, number = stem.rpartition("_")
    return name if number.isdecimal() else ""


def name_of_source(source: Path | str) -> tuple[str, str]:
    """Return stem and suffix (".jpg", or "") for a file, camera, stream or image.

    Of a URL the stem has host, port and path: neither user, password nor query.
    """
    if isinstance(source, str) and "://" in source:
        # All before the last "@" may be a password, which may hold any other mark too.
        address = source.partition("://")[2].rpartition("@")[2]
        place = re.split(r"[?#]", address)[0].strip("/").replace("/", "_")
        return safe_name(place, otherwise="stream"), ""
    name = source.name if isinstance(source, Path) else safe_name(source, otherwise="image")
    suffix = Path(name).suffix
    return cut(name.removesuffix(suffix)), cut(suffix)


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
