"""Requests to stop a run and save its state: signals, a file, a time limit."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from duet.backend.processes import this_process
from duet.utils.processes.exit_status import EXIT_INTERRUPTED, end_process
from duet.utils.processes.start import set_handlers
from duet.utils.system.children import INTERRUPTS, SUSPENDING, unblock

FILE_VARIABLE = "DUET_SUSPEND_FILE"  # path of the file for requests by `launch.py`
ALWAYS = ("SIGTERM", "SIGUSR1")  # handled even if a parent ignored them
HANDLED = (*SUSPENDING, *INTERRUPTS)


class Suspended(Exception):
    """The run has saved its state and ends; the message gives the reason and how to resume.

    by_hand: requested by Ctrl-C.
    """

    def __init__(self, text: str, by_hand: bool = False) -> None:
        super().__init__(text)
        self.by_hand = by_hand


class StopRequests:
    """Collects stop requests.

    Ctrl-C is a request inside `saving_at_interrupt` and raises KeyboardInterrupt elsewhere. A
    second Ctrl-C ends the process at once. Signals count only if the run is in the main thread.

    Args:
        file: a request if it exists.
        message: another such file, containing the reason.
        minutes: time limit from now; None for no limit.
        agree: given whether this rank has a request, returns whether any rank has. Called on all
            ranks at the same points.
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
        self._saves_at_interrupt = False
        self.interrupted = False  # by Ctrl-C, in any rank once `cause` returned

    def cause(self, agreed: bool | None = None) -> str | None:
        """Return the reason to stop; None if no rank has a request.

        agreed: whether any rank `is_asked`, if all know it; None to find out.
        """
        if not (self.agree(self.is_asked()) if agreed is None else agreed):
            return None
        self.interrupted = self.agree(self.interrupted)
        return self._own_cause() or "requested by another rank"

    def is_asked(self) -> bool:
        return self._own_cause() is not None

    @contextmanager
    def saving_at_interrupt(self) -> Iterator[None]:
        """Make Ctrl-C a stop request in the block, in which `cause` is polled."""
        self._saves_at_interrupt = True
        try:
            yield
        finally:
            self._saves_at_interrupt = False

    def _own_cause(self) -> str | None:
        if self.interrupted:
            return "Ctrl-C"
        if self._signal:
            return self._signal
        # os.path.exists: a temporarily unreachable shared folder must not end the run.
        if self._message is not None and os.path.exists(self._message):
            return self._message.read_text(encoding="utf-8") or f"{self._message} exists"
        if self._file is not None and os.path.exists(self._file):
            return f"{self._file} exists; remove it before resuming"
        if self._deadline is not None and time.monotonic() >= self._deadline:
            return f"--time-limit {self._minutes:g} min"
        return None

    def take_signals(self) -> None:
        """Install the signal handlers; call it again after imports that install their own."""
        for number in HANDLED:
            # Ctrl-C is ignored in a shell's background, SIGHUP under nohup.
            if number.name in ALWAYS or signal.getsignal(number) is not signal.SIG_IGN:
                asks = number in SUSPENDING
                set_handlers({number: self._notice if asks else self._notice_interrupt})
        unblock(SUSPENDING)  # blocked by `launch.py`

    def _notice(self, number: int, frame: FrameType | None) -> None:
        self._signal = signal.Signals(number).name

    def _notice_interrupt(self, number: int, frame: FrameType | None) -> None:
        if self.interrupted:
            end_process(EXIT_INTERRUPTED)
        self.interrupted = True  # even if Python ignores the exception, as in `__del__`
        if not self._saves_at_interrupt:
            raise KeyboardInterrupt
        if this_process().is_main:
            os.write(2, b"\nCtrl-C: saving the state after this batch; press again to quit now\n")


def ignore_requests() -> None:
    """Ignore late signals, which must not change the exit code of a finished command."""
    for number in SUSPENDING:
        signal.signal(number, signal.SIG_IGN)
    for number in INTERRUPTS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


@contextmanager
def listening(suspend_file: str, minutes: float | None) -> Iterator[StopRequests]:
    """Collect stop requests in the block; restore the signal handlers afterwards.

    After an exception they are not restored: a second request must not change how a command ends
    that has saved its state.
    """
    names = (suspend_file, os.environ.get(FILE_VARIABLE, ""))
    file, message = (Path(name) if name else None for name in names)
    requests = StopRequests(file, message, minutes)
    before = {number: signal.getsignal(number) for number in HANDLED}
    requests.take_signals()
    yield requests
    set_handlers(before)
