"""Fake sources whose frames hold their number."""

from __future__ import annotations

import threading
import time

import numpy as np

from duet.utils.detect.media.source import Frame
from duet.utils.errors import BrokenSourceError

SIDE = 4


class FakeSource:
    """A source of frames filled with its number, which may break, wait, or never end.

    Attributes:
        opened: the names of all fake sources whose frames were asked for, in that order.
    """

    opened: list[str] = []
    rate = None

    def __init__(self, number, kind="image", frames=1, breaks=False, waits=False, side=SIDE):
        self.number, self.kind, self.num_frames = number, kind, frames
        self.name = f"{kind} {number}"
        self.closed = threading.Event()
        self._breaks, self._waits, self._side = breaks, waits, side

    def frames(self):
        FakeSource.opened.append(self.name)
        for index in range(self.num_frames):
            time.sleep(0.001 * (self.number * 7 % 5))  # some are slower than others
            image = np.full((self._side, self._side, 3), self.number, np.uint8)
            yield Frame(image, self.name, None if self.kind == "image" else index)
        if self._waits:
            assert self.closed.wait(20), "nobody closed the source"
        if self._breaks:
            raise BrokenSourceError(f"no more of {self.number}")

    def close(self):
        self.closed.set()
