"""Frames -> videos that keep their times: H.264 in MP4, which browsers and players open."""

from __future__ import annotations

from contextlib import ExitStack
from fractions import Fraction
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from duet.utils.atomic_files import atomic_file, naming
from duet.utils.errors import UserError
from duet.utils.optional import import_optional

MAX_SIDE = 16384  # of H.264
_TICKS = 90_000  # a second; MPEG's own clock, which 24, 25, 30 and 30000/1001 frames divide
_DEFAULT_RATE = Fraction(30)
_THREADS = 2
# Measured on 720p: "veryfast" takes 0.6 of the time of "fast"; without B-frames none is held back.
_H264 = {"preset": "veryfast", "crf": "20", "bf": "0"}


class VideoWriter:
    """A video that is written frame by frame; a context manager.

    The file has its name when it is closed, also by an exception: what is written is whole. Without
    a frame there is no file.
    """

    def __init__(self, path: Path, size: tuple[int, int], rate: Fraction | None = None) -> None:
        """Begin a video of frames (height, width).

        An odd side becomes even by one more row or column, as H.264 asks for.

        Args:
            rate: frames per second, for the duration of the last frame. 30 if None.

        Raises:
            UserError: PyAV is absent, or a side is too long.
        """
        if max(size) > MAX_SIDE:
            raise UserError(
                f"{path}: a video of {size[1]}x{size[0]} px; at most {MAX_SIDE:,} px per side "
                "can be written; use --nosave"
            )
        self._av = import_optional("av", "writing a video")
        self._path = path
        self._size = size
        self._rate = rate or _DEFAULT_RATE
        self._last_tick = -1
        self._stack = ExitStack()
        self._container: Any = None  # from the first frame on
        self._stream: Any = None
        self._error: Exception | None = None

    def __enter__(self) -> VideoWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def write(self, image: np.ndarray, seconds: float) -> None:
        """Write a frame.

        Args:
            image: (H, W, 3) uint8 RGB; one of another size than the video's is resized.
            seconds: when it is shown, later than the frame before it.

        Raises:
            OSError: the folder cannot be written, the disk is full, or the like; for each frame
                that follows, the same.
        """
        if self._error:
            raise self._error
        height, width = self._size
        if image.shape[:2] != self._size:
            image = cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA)
        image = cv2.copyMakeBorder(image, 0, height % 2, 0, width % 2, cv2.BORDER_REPLICATE)
        frame = self._av.VideoFrame.from_ndarray(image, format="rgb24")
        self._last_tick = max(round(seconds * _TICKS), self._last_tick + 1)
        frame.pts, frame.time_base = self._last_tick, Fraction(1, _TICKS)
        try:
            with naming(self._path):
                if self._container is None:
                    self._begin()
                self._mux(frame)
        except Exception as error:  # errors of later frames would hide the cause
            self._error = error
            raise

    def _begin(self) -> None:
        file = self._stack.enter_context(atomic_file(self._path))
        self._container = self._av.open(file, "w", format="mp4")
        stream = self._stream = self._container.add_stream("libx264", rate=self._rate)
        stream.height, stream.width = (side + side % 2 for side in self._size)
        stream.pix_fmt = "yuv420p"
        stream.codec_context.time_base = stream.time_base = Fraction(1, _TICKS)
        stream.codec_context.thread_count = _THREADS
        stream.options = {**_H264, "g": str(max(round(self._rate), 1))}

    def _mux(self, frame: Any) -> None:
        for packet in self._stream.encode(frame):
            packet.duration = max(round(_TICKS / self._rate), 1)
            self._container.mux(packet)

    def close(self) -> None:
        """Finish the file, and give it its name; OSError if it cannot be written.

        After an error in `write` the file is removed, and that error raised again.
        """
        with self._stack:
            if self._error:
                raise self._error
            if self._container is not None:
                self._mux(None)
                self._container.close()
                self._container = None
