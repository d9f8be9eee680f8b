"""Where the files of each result go.

Before: frames, in the order of their sources. After: `run_files.py`.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

from utils.errors import UserError
from utils.media.frame import Frame
from utils.results.image_file import suffix_that_holds
from utils.results.names import Stems, name_of_source

VIDEO_SUFFIX = ".mp4"


class SourceFiles:
    """What the files of one source are called."""

    def __init__(self, stem: str, suffix: str, drawing: Path, rate: Fraction | None) -> None:
        self.stem = stem
        self.table_name = stem + suffix  # in the table of all results
        self.drawing = drawing  # the image or video with boxes
        self.rate = rate  # frames a second; None: unknown, or an image
        self.last_frame = -1
        self.num_crops: Counter[str] = Counter()  # in each folder


class Place(NamedTuple):
    """Where the files of a result go, and its turn in the files that hold all results."""

    turn: int  # from 0
    files: SourceFiles
    name: str  # of the image's own files, without suffix


class Places:
    """Gives each frame its place: no two write the same file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stems = Stems()
        self._videos: dict[Path | str, SourceFiles] = {}
        self._next_turn = 0

    def reserve(self, frame: Frame, rate: Fraction | None) -> Place:
        """Return the place of the next frame.

        Args:
            rate: frames per second of its video, where known.
        """
        self._next_turn += 1
        if frame.number is None:
            files = self._new_files(frame, None)
            return Place(self._next_turn - 1, files, files.stem)
        files = self._video(frame, frame.number, rate)
        return Place(self._next_turn - 1, files, f"{files.stem}_{frame.number + 1}")

    def _video(self, frame: Frame, number: int, rate: Fraction | None) -> SourceFiles:
        files = self._videos.get(frame.source)
        if files is None or number <= files.last_frame:  # the same source once more
            files = self._videos[frame.source] = self._new_files(frame, rate)
        files.last_frame = number
        return files

    def _new_files(self, frame: Frame, rate: Fraction | None) -> SourceFiles:
        stem, suffix = name_of_source(frame.source)
        if frame.number is None:
            stem = self._stems.take_for_image(stem)
            drawing = self._folder / f"{stem}{suffix_that_holds(suffix, frame.image)}"
        else:
            stem = self._stems.take_for_video(stem)
            drawing = self._folder / f"{stem}{VIDEO_SUFFIX}"
        return SourceFiles(stem, suffix, drawing, rate)


def require_another_file(path: Path, source: Path | str) -> None:
    """Raise UserError if a source would be replaced by what is drawn on it."""
    if isinstance(source, Path) and path.exists() and source.exists() and path.samefile(source):
        raise UserError(
            f"--source {source} lies in the folder of results, where its drawing would replace "
            "it; choose another --name"
        )
