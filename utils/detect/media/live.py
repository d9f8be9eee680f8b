"""Live sources: the newest frame of a camera or a stream.

A thread reads; frames that nobody took in time are left out, so that what is shown is never old and
no queue grows. What breaks off is opened again.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from fractions import Fraction
from typing import NamedTuple

from duet.utils.detect.media.source import BrokenSourceError, Frame, Kind, Source

TRIES = 5  # in a row without a frame; then it is over
PAUSE_SECONDS = 5.0  # before each of them
_POLL_SECONDS = 0.1  # between looks at whether it was closed

log = logging.getLogger("detect")


class Feed(NamedTuple):
    """What was opened."""

    rate: Fraction | None
    frames: Iterable[Frame]  # all of them; BrokenSourceError where it breaks off
    is_recording: bool = False  # it has an end, and waits until a frame is taken


OpenFeed = Callable[[], AbstractContextManager[Feed]]


class LiveSource(Source):
    """A camera or a stream, of which every n-th frame may be given."""

    kind: Kind = "live"

    def __init__(self, name: str, open_feed: OpenFeed, stride: int = 1) -> None:
        self.name = name
        self._open_feed = open_feed
        self._stride = stride
        self._newest: queue.Queue[Frame | Exception | None] = queue.Queue(1)
        self._closed = threading.Event()
        self._num_read = 0
        self._start = self._last = 0.0  # when the first and the last frame came, by the clock

    def frames(self) -> Iterator[Frame]:
        """Yield the newest frame whenever one is asked for; seconds are those of the clock.

        A recording at a URL gives all its frames, with its own times.
        """
        # A daemon: a system call that waits for a camera cannot be ended.
        threading.Thread(target=self._read, name=f"read {self.name}", daemon=True).start()
        try:
            while not self._closed.is_set():
                with suppress(queue.Empty):
                    given = self._newest.get(timeout=_POLL_SECONDS)
                    if isinstance(given, Exception):
                        raise given
                    if given is None:
                        return
                    yield given
        finally:
            self.close()

    def close(self) -> None:
        self._closed.set()

    def _read(self) -> None:
        try:
            self._read_to_the_end()
            self._give(None, replace=False)
        except Exception as failure:  # of whatever kind, it is for the thread that takes frames
            self._give(failure, replace=False)

    def _give(self, frame: Frame | Exception | None, replace: bool) -> None:
        """Hand a frame over in place of the last one, or once that is taken."""
        while not self._closed.is_set():
            if replace:
                with suppress(queue.Empty):
                    self._newest.get_nowait()
            with suppress(queue.Full):
                return self._newest.put(frame, timeout=_POLL_SECONDS)

    def _read_to_the_end(self) -> None:
        """Read until it is closed or a recording ends; BrokenSourceError if it stays away."""
        tries = 0
        while True:
            num_before = self._num_read
            try:
                with self._open_feed() as feed:
                    self._read_feed(feed)
                if feed.is_recording or self._closed.is_set():
                    return
                reason = "it ended"
            except BrokenSourceError as error:
                reason = str(error)
            tries = 0 if self._num_read > num_before else tries + 1
            if not self._num_read or tries == TRIES:  # without a frame it was never there
                raise BrokenSourceError(reason)
            log.warning("%s: %s; reconnecting in %g s", self.name, reason, PAUSE_SECONDS)
            if self._closed.wait(PAUSE_SECONDS):
                return

    def _read_feed(self, feed: Feed) -> None:
        """Hand over the frames of a feed until it ends, or nobody takes them any more."""
        self.rate = feed.rate / self._stride if feed.rate else None
        for given in feed.frames:
            number, self._num_read = self._num_read, self._num_read + 1
            self._last = time.monotonic()
            self._start = self._start if number else self._last
            seconds = given.seconds if feed.is_recording else self._last - self._start
            if number % self._stride == 0:
                frame = Frame(given.image, self.name, number, seconds)
                self._give(frame, replace=not feed.is_recording)
            if self._closed.is_set():
                return
