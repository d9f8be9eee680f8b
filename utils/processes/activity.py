"""What a process is doing and since when, for the watchdog and its messages."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from backend import collectives

LONGEST_TICK_SECONDS = 1.0


class Report(NamedTuple):
    """What a rank reports of itself."""

    phase: str
    step: int  # signs of progress in this phase
    changes: int  # beginnings and ends of phases, since the start
    collectives: int  # begun since the start
    idle_s: float  # since the last sign of progress

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> Report:
        """Return the report in a JSON message; LookupError, TypeError or ValueError without one."""
        step, changes, begun = (int(message[name]) for name in ("step", "changes", "collectives"))
        return cls(str(message["phase"]), step, changes, begun, float(message["idle_s"]))

    @property
    def position(self) -> tuple[int, int, int]:
        """How far the rank is in the work, which all ranks do in the same order."""
        return self.collectives, self.changes, self.step

    def __str__(self) -> str:
        return f"in {self.phase}" + (f", step {self.step}" if self.step else "")


class Activity:
    """The phases that a process is in, one inside the other, and its last sign of progress."""

    def __init__(self) -> None:
        self.seconds = 0.0  # that the process has run, as `tick` counts them
        self._ticked = time.monotonic()
        self._phases = [("setup", 0)]
        self._changes = 0
        self._last = 0.0

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Enter a phase, then return to the phase around it; both are signs of progress."""
        self._phases.append((name, 0))
        self._change()
        yield  # after an exception the phase stays, to be named at the end of the process
        self._phases.pop()
        self._change()

    def progress(self) -> None:
        """Count a step of this phase, at its begin or end."""
        name, step = self._phases[-1]
        self._phases[-1] = name, step + 1
        self._last = self.seconds

    def report(self) -> Report:
        idle_s = self.seconds - self._last
        return Report(*self._phases[-1], self._changes, collectives.begun(), idle_s)

    def tick(self) -> None:
        """Count the seconds; one thread calls this several times a second.

        Time in which the whole process is stopped by SIGSTOP is not counted: Slurm suspends jobs
        this way.
        """
        before, self._ticked = self._ticked, time.monotonic()
        self.seconds += min(self._ticked - before, LONGEST_TICK_SECONDS)

    def _change(self) -> None:
        self._changes += 1
        self._last = self.seconds


def furthest_behind(reports: Mapping[int, Report], timeout_s: float) -> int | None:
    """Return the rank for which the others wait; None if all make progress within the timeout.

    That rank has begun the fewest collectives. Frameworks may queue a call and work later: a queued
    call counts as begun, on all ranks alike.
    """
    if max((report.idle_s for report in reports.values()), default=0.0) <= timeout_s:
        return None
    # The others have stood still almost as long.
    still = {rank: report for rank, report in reports.items() if report.idle_s > timeout_s / 2}
    return min(still, key=lambda rank: (still[rank].position, -still[rank].idle_s))
