"""The videos with boxes that a run writes.

Before: `run_files.py`, which draws the frames. After: `utils/media/video_writer.py`.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from utils.files.atomic import naming
from utils.media.frame import Frame
from utils.media.video_writer import VideoWriter
from utils.results.places import SourceFiles


class DrawnVideos:
    """Writes frames into the videos of their sources.

    A video of a file is finished when that of the next file begins, so few are open at once.
    """

    def __init__(self) -> None:
        self._of_files: dict[Path, VideoWriter] = {}
        self._live: dict[Path, VideoWriter] = {}
        self._lock = threading.Lock()

    def write(self, frame: Frame, drawn: np.ndarray, files: SourceFiles) -> None:
        """Add a frame, drawn on, to the video of its source; OSError names the video."""
        assert frame.seconds is not None, f"frame {frame.number} of {frame.source} has no time"
        with naming(files.drawing):
            self._writer(frame, files).write(drawn, frame.seconds)

    def _writer(self, frame: Frame, files: SourceFiles) -> VideoWriter:
        is_file = isinstance(frame.source, Path)
        writers = self._of_files if is_file else self._live
        with self._lock:
            if files.drawing not in writers:
                if is_file:
                    _close_all(writers)
                size = frame.image.shape[0], frame.image.shape[1]
                writers[files.drawing] = VideoWriter(files.drawing, size, files.rate)
            return writers[files.drawing]

    def close(self) -> None:
        """Finish all videos; OSError if one cannot be."""
        with ExitStack() as stack:
            stack.callback(_close_all, self._of_files)
            stack.callback(_close_all, self._live)


def _close_all(writers: dict[Path, VideoWriter]) -> None:
    with ExitStack() as stack:
        while writers:
            stack.callback(writers.popitem()[1].close)
