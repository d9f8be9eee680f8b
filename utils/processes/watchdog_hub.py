"""The watchdog in rank 0: receive the reports of all ranks, judge them, end the job."""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from backend.processes import this_process
from utils.processes.activity import Activity, Report, furthest_behind
from utils.processes.exit_status import (
    AGREED_ENDS,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    end_process,
    say,
)
from utils.processes.watchdog_door import Door
from utils.processes.watchdog_link import (
    BEAT_SECONDS,
    LINGER_SECONDS,
    POLL_SECONDS,
    Link,
    rank_name,
)

JOIN_SECONDS = 60.0
HELLO_SECONDS = 10.0  # in which one that has named the token must say which rank it is


@dataclass
class _Known:
    """What rank 0 knows of another rank; times are those of `Activity.seconds`."""

    rank: int
    host: str
    link: Link
    report: Report
    heard: float
    goodbye: int | None = None  # its exit code
    ended: str = ""  # how its connection ended

    def __str__(self) -> str:
        return rank_name(self.rank, self.host)

    @property
    def is_leaving(self) -> bool:
        return self.goodbye in AGREED_ENDS


class Hub:
    """Rank 0's end of the connections: a thread of each keeps the last report.

    Another thread judges the reports. The end of a connection is judged at once, because a launcher
    ends rank 0 a tenth of a second after another rank has died.

    Args:
        host: the address to which the others connect.
    """

    def __init__(self, host: str, activity: Activity, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        token = secrets.token_hex(16)
        self._door = Door(host, token)
        self.invitation = {"port": self._door.port, "token": token, "host": socket.gethostname()}
        self._activity = activity
        self._members: list[_Known] = []
        self._missing = set(range(1, this_process().world_size))
        self._told = activity.seconds
        self._leaves = False
        self._is_over = threading.Event()
        self._judging = threading.Lock()  # the thread that ends the job keeps it
        threading.Thread(target=self._watch, daemon=True, name="watchdog").start()

    def __str__(self) -> str:
        return rank_name(0, socket.gethostname())

    def wait_for_members(self) -> None:
        """Accept the other ranks until all have connected; RuntimeError if one does not in time.

        Afterwards nobody can connect.
        """
        deadline = time.monotonic() + JOIN_SECONDS
        while len(self._members) < this_process().world_size - 1:
            if time.monotonic() > deadline:
                ranks = sorted(self._missing)
                raise RuntimeError(f"ranks {ranks} do not answer the watchdog of rank 0")
            for connection in self._door.admit(POLL_SECONDS):
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()
        self._door.close()

    def tell(self) -> None:
        """Tell all members what this rank is doing."""
        self._told = self._activity.seconds
        self._tell_all(doing=str(self._activity.report()))

    def leave(self, code: int) -> None:
        """End the others with this rank; after success, wait first until all have come here."""
        self._leaves = True
        if code in AGREED_ENDS:
            while not all(member.is_leaving for member in self._members):
                time.sleep(POLL_SECONDS / 4)
            self._say_last(goodbye=code)
        else:
            text = f"{self} ended with exit code {code} {self._activity.report()}; the job ends"
            self._say_last(end=text, code=code)

    def _watch(self) -> None:
        """Report to the others and judge them, several times a second."""
        while not self._is_over.wait(POLL_SECONDS):
            self._activity.tick()
            if self._activity.seconds - self._told > BEAT_SECONDS:
                self.tell()
            self._judge()

    def _serve(self, connection: socket.socket) -> None:
        """Read a connection that knows the token to its end."""
        with connection:
            link = Link(connection)
            try:
                member = self._welcome(link)
            except (OSError, EOFError, LookupError, TypeError, ValueError, OverflowError):
                return  # it is none of the ranks that are missing
            self._listen(member)
        self._judge()

    def _welcome(self, link: Link) -> _Known:
        """Make the sender of the first message a member, and answer."""
        link.socket.settimeout(HELLO_SECONDS)
        hello = link.read()
        link.socket.settimeout(None)
        report, now = self._activity.report(), self._activity.seconds
        member = _Known(int(hello["rank"]), str(hello["host"]), link, report, now)
        self._missing.remove(member.rank)
        link.send(doing=str(report))
        self._members.append(member)
        return member

    def _listen(self, member: _Known) -> None:
        try:
            while True:
                message = member.link.read()
                member.report, member.heard = Report.of(message), self._activity.seconds
                member.goodbye = message.get("goodbye", member.goodbye)
        except EOFError:
            member.ended = f"died or was killed {self._last_told(member)}"
        except Exception as error:  # after any error this rank's reports cannot be read
            member.ended = f"is lost {self._last_told(member)}: {error}"

    def _last_told(self, member: _Known) -> str:
        return f"{member.report} (told {self._activity.seconds - member.heard:.1f} s before)"

    def _judge(self) -> None:
        with self._judging:
            if not self._is_over.is_set():
                self._look_for_ended()
                self._look_for_standstill()

    def _look_for_ended(self) -> None:
        for member in self._members:
            code, report = member.goodbye, member.report
            if code == EXIT_INTERRUPTED:  # Ctrl-C comes to all ranks, and rank 0 reports it
                if self._activity.seconds - member.heard > LINGER_SECONDS / 2 and not self._leaves:
                    self._end_job(f"{member} was interrupted {report}", code)
            elif code is not None and code not in AGREED_ENDS:
                text = f"ended with exit code {code} {report}, see its message above"
                self._end_job(f"{member} {text}", code)
            elif member.ended:
                self._end_job(f"{member} {member.ended}")

    def _look_for_standstill(self) -> None:
        now = self._activity.seconds
        reports = {
            m.rank: m.report._replace(idle_s=m.report.idle_s + now - m.heard)
            for m in self._members
            if not m.is_leaving
        }
        if not self._leaves:
            reports[0] = self._activity.report()
        rank = furthest_behind(reports, self.timeout_s)
        if rank is None:
            return
        name = next((str(member) for member in self._members if member.rank == rank), str(self))
        still = f"no progress for {reports[rank].idle_s:.0f} s {reports[rank]}"
        self._end_job(f"{name}: {still} (--timeout {self.timeout_s:g})", show_stack=rank)

    def _end_job(self, what: str, code: int = EXIT_FAILED, show_stack: int | None = None) -> None:
        """Print why, tell all members to end, and end."""
        text = f"{what}; the job ends"
        say(text)
        self._say_last(end=text, code=code, show_stack=show_stack)
        end_process(code, show_stack)

    def _say_last(self, **message: Any) -> None:
        """Send a last message; return when all have received it, or after LINGER_SECONDS."""
        self._is_over.set()
        self._tell_all(**message)
        for member in self._members:
            member.link.finish()
        _wait_until(lambda: all(member.ended for member in self._members), LINGER_SECONDS)

    def _tell_all(self, **message: Any) -> None:
        for member in self._members:
            member.link.send(**message)


def _wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Return whether the condition became true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS / 4)
    return True
