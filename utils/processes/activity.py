"""What a process is doing and since when, for the watchdog and its messages."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from backend import collectives

LONGEST_TICK_SECONDS = 1.0


class Report(NamedTuple):
    """What a rank tells of itself."""

    phase: str
    step: int  # signs of progress in this phase
    changes: int  # beginnings and ends of phases, since the start
    collectives: int  # begun since the start
    idle_s: float  # since the last sign of progress

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> Report:
        """Return the report that came as JSON; LookupError, TypeError or ValueError for others."""
        step, changes, begun = (int(message[name]) for name in ("step", "changes", "collectives"))
        return cls(str(message["phase"]), step, changes, begun, float(message["idle_s"]))

    @property
    def place(self) -> tuple[int, int, int]:
        """How far the rank is in the work, which all ranks do in the same order."""
        return self.collectives, self.changes, self.step

    def __str__(self) -> str:
        return f"in {self.phase}" + (f", step {self.step}" if self.step else "")


class Activity:
    """The phases that a process is in, one inside the other, and its last sign of progress."""

    def __init__(self) -> None:
        self.seconds = 0.0  # for which the process has run, as `tick` counts them
        self._ticked = time.monotonic()
        self._phases = [("setup", 0)]
        self._changes = 0
        self._last = 0.0

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Its end goes back to the phase around it; both ends are signs of progress."""
        self._phases.append((name, 0))
        self._change()
        yield  # after an exception the phase stays, to be named at the end of the process
        self._phases.pop()
        self._change()

    def progress(self) -> None:
        """Count a step of this phase, which begins or is done."""
        name, step = self._phases[-1]
        self._phases[-1] = name, step + 1
        self._last = self.seconds

    def report(self) -> Report:
        idle_s = self.seconds - self._last
        return Report(*self._phases[-1], self._changes, collectives.begun(), idle_s)

    def tick(self) -> None:
        """Go on counting seconds; one thread calls it, several times a second.

        The time for which the process is stopped as a whole, as by SIGSTOP, is not counted:
        Slurm suspends jobs so.
        """
        before, self._ticked = self._ticked, time.monotonic()
        self.seconds += min(self._ticked - before, LONGEST_TICK_SECONDS)

    def _change(self) -> None:
        self._changes += 1
        self._last = self.seconds


def furthest_behind(reports: Mapping[int, Report], timeout_s: float) -> int | None:
    """Return the rank for which the others wait; None where none makes no progress for so long.

    That rank has begun the fewest collectives. Frameworks may work later than they are called: a
    call that is queued counts as begun, on all ranks alike.
    """
    if max((report.idle_s for report in reports.values()), default=0.0) <= timeout_s:
        return None
    # The others stand still almost as long.
    still = {rank: report for rank, report in reports.items() if report.idle_s > timeout_s / 2}
    return min(still, key=lambda rank: (still[rank].place, -still[rank].idle_s))
