"""Name a rank that hangs, show where it is, and end it.

Long work names its phase and reports each step:

    with watchdog.phase("validation"):
        for batch in loader:
            watchdog.progress()

Both cost about a microsecond. In each rank of a job `start` begins to watch these reports; what
started the ranks ends the others when one has ended. A process that is alone is not watched: a
debugger may hold it.
"""

from __future__ import annotations

import faulthandler
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from duet.backend.processes import this_process
from duet.utils.processes.exit_status import EXIT_FAILED, end_process, say
from duet.utils.text import STDERR

POLL_SECONDS = 0.2
LONGEST_TICK_SECONDS = 1.0
LINGER_SECONDS = 3.0  # in which other ranks that stand still report it too


class Watchdog:
    """The phases that a process is in, one inside another, and its last sign of progress."""

    def __init__(self) -> None:
        self._phases = [("setup", 0)]
        self._seconds = 0.0  # that the process has been watched
        self._last = 0.0

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Enter a phase, then return to the phase around it; both are signs of progress."""
        self._phases.append((name, 0))
        self._last = self._seconds
        yield  # after an exception the phase stays, to be named if the process hangs at its end
        self._phases.pop()
        self._last = self._seconds

    def progress(self) -> None:
        """Count a step of this phase."""
        name, step = self._phases[-1]
        self._phases[-1] = name, step + 1
        self._last = self._seconds

    def describe(self) -> str:
        """Return the phase and its step in words."""
        name, step = self._phases[-1]
        return f"in {name}" + (f", step {step}" if step else "")

    def start(self, timeout_s: float) -> None:
        """End this process after so many seconds without progress, from now on."""
        self._last = self._seconds
        threading.Thread(target=self._watch, args=(timeout_s,), daemon=True).start()

    def _watch(self, timeout_s: float) -> None:
        before = time.monotonic()
        while self._seconds - self._last <= timeout_s:
            time.sleep(POLL_SECONDS)
            now = time.monotonic()
            # Time in which SIGSTOP stops the process does not count: Slurm suspends jobs so.
            self._seconds += min(now - before, LONGEST_TICK_SECONDS)
            before = now
        idle_s = self._seconds - self._last
        say(
            f"rank {this_process().rank} ({os.uname().nodename}): no progress for {idle_s:.0f} s "
            f"{self.describe()} (--timeout {timeout_s:g}); the job ends"
        )
        faulthandler.dump_traceback(STDERR)
        time.sleep(LINGER_SECONDS)
        end_process(EXIT_FAILED)


_this = Watchdog()
phase, progress, start, describe = _this.phase, _this.progress, _this.start, _this.describe
