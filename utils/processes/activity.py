"""What a process is doing and since when, for the watchdog and its messages."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from utils.files.project import PROJECT


class Report(NamedTuple):
    """What a rank tells of itself."""

    phase: str
    step: int  # signs of progress in this phase
    total: int  # and since the start
    idle_s: float  # since the last one
    may_wait: bool  # for other ranks

    def __str__(self) -> str:
        return f"in {self.phase}" + (f", step {self.step}" if self.step else "")


class Activity:
    """The phases that a process is in, one inside the other, and its last sign of progress."""

    def __init__(self) -> None:
        self._phases = [("setup", 0)]
        self._total = 0
        self.touch()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Its end goes back to the phase around it; both ends are signs of progress."""
        self._phases.append((name, 0))
        self.touch()
        yield  # after an exception the phase stays, to be named at the end of the process
        self._phases.pop()
        self.touch()

    def progress(self) -> None:
        """A step of this phase begins or is done."""
        name, step = self._phases[-1]
        self._phases[-1] = name, step + 1
        self._total += 1
        self.touch()

    def touch(self) -> None:
        """Begin to count the time without progress."""
        self._last = time.monotonic()

    def report(self) -> Report:
        idle = time.monotonic() - self._last
        return Report(*self._phases[-1], self._total, idle, _main_thread_may_wait_for_others())


def _main_thread_may_wait_for_others() -> bool:
    """Whether it is in a call of a backend: where ranks meet, and where a device is waited for."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(PROJECT) and path.relative_to(PROJECT).parts[0] != ".venv":
            return path.parent.parent == PROJECT / "backend"
        frame = frame.f_back
    return False
