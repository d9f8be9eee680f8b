"""A time limit for a run of benchmarks, and a process that ends with its children at the limit."""

from __future__ import annotations

import math
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

from utils.comparison.runner import Family


class TimeLimit:
    """Minutes from now on."""

    def __init__(self, minutes: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin.

        Args:
            minutes: None for no limit.
            clock: seconds from any moment on.
        """
        self.minutes = math.inf if minutes is None else minutes
        self._clock, self._start = clock, clock()

    def seconds(self) -> float:
        """Return the seconds since the beginning."""
        return self._clock() - self._start

    def left(self) -> float:
        """Return the seconds that are left; infinity without a limit."""
        return 60 * self.minutes - self.seconds()

    def is_over(self) -> bool:
        return self.left() <= 0


def run_within(
    line: Sequence[str], environment: Mapping[str, str], seconds: float, output: Path | None
) -> int | None:
    """Run a command; return its exit code, or None if it was ended after so many seconds.

    All that it started ends with it.

    Args:
        output: takes what it prints; None for the standard output of this process.
    """
    family, process = Family(), None
    try:
        with nullcontext() if output is None else output.open("wb") as stream:
            process = subprocess.Popen(line, env=environment, stdout=stream)
            return process.wait(timeout=None if math.isinf(seconds) else seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        family.end(process)
