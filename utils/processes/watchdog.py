"""Detect a hanging rank, show its stack, and end it.

Long operations name their phase and report each step:

    with watchdog.phase("validation"):
        for batch in loader:
            watchdog.progress()

Both cost about a microsecond. `start` begins watching in each rank of a job; the launcher ends the
others when one has ended. A single process is not watched, since a debugger may stop it.
"""

import faulthandler
import os
import platform
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from duet.backend.processes import this_process
from duet.utils.processes.exit_status import EXIT_FAILED, end_process, say
from duet.utils.text import STDERR

POLL_SECONDS = 0.2
LONGEST_TICK_SECONDS = 1.0
LINGER_SECONDS = 3.0  # lets other hanging ranks report too


class Watchdog:
    """The nested phases of a process, and its last progress."""

    def __init__(self) -> None:
        self._phases = [("setup", 0)]
        self._failed: tuple[str, int] | None = None  # phase that an error ended last
        self._seconds = 0.0  # watched so far
        self._last = 0.0

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Enter a phase, then return to the outer one; both count as progress.

        One that an error ended is still described, until there is progress: the process may hang.
        """
        self._phases.append((name, 0))
        self._advance()
        try:
            yield
        except BaseException:
            self._failed = self._failed or self._phases[-1]
            raise
        else:
            self._advance()
        finally:
            self._phases.pop()

    def _advance(self) -> None:
        self._failed, self._last = None, self._seconds

    def progress(self) -> None:
        """Count a step of the current phase."""
        name, step = self._phases[-1]
        self._phases[-1] = name, step + 1
        self._advance()

    def describe(self) -> str:
        name, step = self._failed or self._phases[-1]
        return f"in {name}" + (f", step {step}" if step else "")

    def start(self, timeout_s: float) -> None:
        """From now on, end this process after `timeout_s` without progress."""
        self._last = self._seconds
        threading.Thread(target=self._watch, args=(timeout_s,), daemon=True).start()

    def _watch(self, timeout_s: float) -> None:
        before = time.monotonic()
        while self._seconds - self._last <= timeout_s:
            time.sleep(POLL_SECONDS)
            now = time.monotonic()
            # Time stopped by SIGSTOP, with which Slurm suspends jobs, does not count.
            self._seconds += min(now - before, LONGEST_TICK_SECONDS)
            before = now
        idle_s = self._seconds - self._last
        say(
            f"rank {this_process().rank} ({platform.node()}): no progress for {idle_s:.0f} s "
            f"{self.describe()} (--timeout {timeout_s:g}); ending the job"
        )
        with tempfile.TemporaryFile() as file:  # written at once: ranks often hang together
            faulthandler.dump_traceback(file)
            file.seek(0)
            os.write(STDERR, file.read())
        time.sleep(LINGER_SECONDS)
        end_process(EXIT_FAILED)


_this = Watchdog()
phase, progress, start, describe = _this.phase, _this.progress, _this.start, _this.describe
