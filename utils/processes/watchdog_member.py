"""The watchdog in every rank but rank 0: report to rank 0, and end when it says so."""

from __future__ import annotations

import threading

from backend.processes import this_process
from utils.processes.activity import Activity
from utils.processes.exit_status import AGREED_ENDS, EXIT_FAILED, end_process, say
from utils.processes.watchdog_link import (
    BEAT_SECONDS,
    LINGER_SECONDS,
    POLL_SECONDS,
    Link,
)


class Member:
    """A rank that reports to rank 0, from a thread of its own.

    Args:
        main: the name of rank 0.
    """

    def __init__(self, link: Link, activity: Activity, timeout_s: float, main: str) -> None:
        self.timeout_s = timeout_s
        self._link, self._activity, self._main = link, activity, main
        self._told = self._heard = activity.seconds
        self._doing = "in setup"  # rank 0
        self._fails = False  # on its own
        self._is_dismissed = False
        link.socket.settimeout(POLL_SECONDS)
        self._thread = threading.Thread(target=self._watch, daemon=True, name="watchdog")
        self._thread.start()

    def tell(self, **more: int) -> None:
        """Tell rank 0 what this rank is doing."""
        self._told = self._activity.seconds
        self._link.send(**self._activity.report()._asdict(), **more)

    def leave(self, code: int) -> None:
        """Report the exit code of this rank; after success, wait for the others."""
        self._fails = code not in AGREED_ENDS
        self.tell(goodbye=code)
        self._thread.join(2 * LINGER_SECONDS if self._fails else None)
        self._link.socket.close()

    def _watch(self) -> None:
        while not self._is_dismissed:
            self._activity.tick()
            if self._activity.seconds - self._told > BEAT_SECONDS and not self._fails:
                self.tell()
            try:
                self._heed(**self._link.read())
            except EOFError:
                self._end("died or was killed")
            except ValueError as error:
                self._end(f"is lost ({error})")
            except OSError as error:
                if error.errno is not None:
                    self._end(f"is lost ({error.strerror})")
                elif self._activity.seconds - self._heard > self.timeout_s:
                    self._end("says nothing")

    def _heed(
        self,
        doing: str = "",
        goodbye: int | None = None,
        end: str = "",
        code: int = EXIT_FAILED,
        show_stack: int | None = None,
    ) -> None:
        """Do what a message of rank 0 says, as `watchdog_hub.py::Hub` sends it."""
        self._heard = self._activity.seconds
        self._doing = doing or self._doing
        self._is_dismissed = goodbye is not None or (bool(end) and self._fails)
        if end and not self._fails:
            if this_process().local_rank == 0:  # once a machine
                say(end)
            end_process(code, show_stack)

    def _end(self, what: str) -> None:
        """End without rank 0; print why once per machine, because nobody else reports it."""
        self._is_dismissed = True
        if self._fails:
            return
        if this_process().rank == 1 or this_process().local_rank == 0:
            told = f"told {self._activity.seconds - self._heard:.1f} s before"
            say(f"{self._main} {what} {self._doing} ({told}); the job ends")
        end_process(EXIT_FAILED)
