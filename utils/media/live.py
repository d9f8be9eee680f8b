"""Live sources: the newest frame of a camera, a stream or the screen.

Before: `camera.py`, `stream.py`, `screen.py` open it. After: `models/inference/job.py`. A thread
reads; frames that nobody took in time are left out, so that what is shown is never old and no
queue grows. What breaks off is opened again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from fractions import Fraction
from typing import NamedTuple

from backend.words import count
from utils.media.frame import Frame
from utils.media.source import BrokenSourceError, Kind
from utils.media.video_frames import TimedImage

PAUSES = (1.0, 2.0, 4.0, 8.0, 16.0)  # seconds before each new try in a row; then it is over
STEADY_SECONDS = 10.0  # what gave frames for so long begins a new row of tries

log = logging.getLogger("detect")


class Feed(NamedTuple):
    """What was opened."""

    rate: Fraction | None
    images: Iterable[TimedImage]  # all of them; BrokenSourceError where it breaks off
    is_recording: bool = False  # it has an end, and waits until a frame is taken


OpenFeed = Callable[[], AbstractContextManager[Feed]]


class LiveSource:
    """A camera, a stream or the screen, of which every n-th frame may be given."""

    kind: Kind = "live"
    num_frames: int | None = None

    def __init__(self, name: str, open_feed: OpenFeed, stride: int = 1) -> None:
        self.name = name
        self.rate: Fraction | None = None
        self._open_feed = open_feed
        self._stride = stride
        self._slot = _Slot()
        self._num_read = 0
        self._start = self._newest = 0.0  # when the first and the last frame came, by the clock

    def frames(self) -> Iterator[Frame]:
        """Yield the newest frame whenever one is asked for; seconds are those of the clock.

        A recording at a URL gives all its frames, with its own times.
        """
        # A daemon: a system call that waits for a camera cannot be ended.
        threading.Thread(target=self._read, name=f"read {self.name}", daemon=True).start()
        try:
            while frame := self._slot.take():
                yield frame
        finally:
            self.close()

    def close(self) -> None:
        """Wake who waits for a frame; reading ends with the frame that it waits for."""
        self._slot.close()

    def _read(self) -> None:
        error = None
        try:
            self._read_to_the_end()
        except Exception as failure:  # of whatever kind, it is for the thread that takes frames
            error = failure
        self._slot.finish(error)

    def _read_to_the_end(self) -> None:
        """Read until it is closed or a recording ends; BrokenSourceError if it stays away."""
        tries = 0
        while True:
            begin = time.monotonic()
            try:
                with self._open_feed() as feed:
                    if self._read_feed(feed) or self._slot.is_closed:
                        return
                reason = "it ended"
            except BrokenSourceError as error:
                reason = str(error)
            if not self._num_read:  # it was never there: a mistake, or not switched on
                raise BrokenSourceError(reason)
            tries = 0 if self._newest > begin + STEADY_SECONDS else tries
            if tries == len(PAUSES):
                again = count(tries, "attempt")
                raise BrokenSourceError(f"{reason}; {again} to open it again failed")
            log.warning("%s: %s; it will be opened again in %g s", self.name, reason, PAUSES[tries])
            if self._slot.wait_closed(PAUSES[tries]):
                return
            tries += 1

    def _read_feed(self, feed: Feed) -> bool:
        """Read until a feed ends; return whether nothing is to follow."""
        self.rate = feed.rate / self._stride if feed.rate else None
        for image, _, seconds in feed.images:
            number, self._num_read = self._num_read, self._num_read + 1
            self._newest = time.monotonic()
            self._start = self._start if number else self._newest
            time_shown = seconds if feed.is_recording else self._newest - self._start
            frame = Frame(image, self.name, number, time_shown)
            if number % self._stride == 0:
                self._slot.put(frame, wait=feed.is_recording)
            if self._slot.is_closed:
                return True
        return feed.is_recording


class _Slot:
    """Holds one frame until it is taken, or replaced by a newer one."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._frame: Frame | None = None
        self._is_finished = False  # what it holds is the last one
        self._error: Exception | None = None
        self.is_closed = False  # nobody takes frames

    def put(self, frame: Frame, wait: bool) -> None:
        """Replace the last frame by this one; `wait`: first wait until the last one is taken."""
        with self._changed:
            if wait:
                self._changed.wait_for(lambda: self._frame is None or self.is_closed)
            self._frame = frame
            self._changed.notify_all()

    def take(self) -> Frame | None:
        """Wait for a frame; None if none follows. Raise the error that ended the reading."""
        with self._changed:
            self._changed.wait_for(lambda: self._frame or self._is_finished or self.is_closed)
            frame, self._frame = self._frame, None
            self._changed.notify_all()
            if self.is_closed:
                return None
            if frame is None and self._error:
                raise self._error
            return frame

    def finish(self, error: Exception | None) -> None:
        """Say that no frame follows the one it holds, and why."""
        with self._changed:
            self._is_finished, self._error = True, error
            self._changed.notify_all()

    def close(self) -> None:
        """Wake all threads that wait, those that take frames and those that put them."""
        with self._changed:
            self.is_closed = True
            self._changed.notify_all()

    def wait_closed(self, seconds: float) -> bool:
        """Wait at most this many seconds for the end; return whether it is closed."""
        with self._changed:
            return self._changed.wait_for(lambda: self.is_closed, seconds)
