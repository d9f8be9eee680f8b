"""What asks a run to stop and keep its state: signals, a file, a time limit.

Before: `train.py::main` listens. After: between two batches the run asks `cause`, saves its state
and raises `Suspended`; `utils/processes/command.py` then ends the process.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
FILE_VARIABLE = "DUET_SUSPEND_FILE"  # names a file in which `local_ranks.py` writes a request


class Suspended(Exception):
    """The run has saved its state and ends; its text says why, and how to go on."""


class StopRequests:
    """Collects the requests to stop.

    Args:
        file: asks to stop when it exists.
        message: a file that asks likewise and holds the reason.
        minutes: time limit from now on; None for no limit.
        agree: takes whether this rank has a request, returns whether any rank has one. All ranks
            call it at the same moments.
    """

    def __init__(
        self,
        file: Path | None = None,
        message: Path | None = None,
        minutes: float | None = None,
        agree: Callable[[bool], bool] = bool,
    ) -> None:
        self.agree = agree
        self._file, self._message = file, message
        self._minutes = minutes
        self._deadline = None if minutes is None else time.monotonic() + 60 * minutes
        self._signal = ""

    @property
    def was_terminated(self) -> bool:
        """Whether SIGTERM came to this process."""
        return self._signal == signal.SIGTERM.name

    def cause(self) -> str | None:
        """Return what asks for a stop, in words; None when no rank has a request."""
        found = self._own_cause()
        if self.agree(found is not None):
            return found or self._own_cause() or "asked for by another rank"
        return None

    def _own_cause(self) -> str | None:
        if self._signal:
            return self._signal
        # os.path.exists: a shared folder that cannot be reached for a moment must not end the run.
        if self._message is not None and os.path.exists(self._message):
            return self._message.read_text(encoding="utf-8") or f"{self._message} is there"
        if self._file is not None and os.path.exists(self._file):
            return f"{self._file} is there; remove it before going on"
        if self._deadline is not None and time.monotonic() >= self._deadline:
            return f"--time-limit {self._minutes:g} minutes"
        return None

    def take_signals(self) -> None:
        """Handle the signals from now on; call it again after an import that installs handlers."""
        for number in SIGNALS:
            signal.signal(number, self._notice)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)  # as `local_ranks.py` starts ranks

    def _notice(self, number: int, frame: FrameType | None) -> None:
        self._signal = signal.Signals(number).name


@contextmanager
def listening(suspend_file: str, minutes: float | None) -> Iterator[StopRequests]:
    """Collect the requests to this process in the block; afterwards signals act as before."""
    names = (suspend_file, os.environ.get(FILE_VARIABLE, ""))
    file, message = (Path(name) if name else None for name in names)
    requests = StopRequests(file, message, minutes)
    before = {number: signal.getsignal(number) for number in SIGNALS}
    requests.take_signals()
    try:
        yield requests
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
