"""The watchdog in rank 0: receive the reports of all ranks, judge them, end the job."""

from __future__ import annotations

import hmac
import secrets
import socket
import socketserver
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
from utils.processes.watchdog_link import (
    BEAT_SECONDS,
    LINGER_SECONDS,
    POLL_SECONDS,
    Link,
    rank_name,
)

JOIN_SECONDS = 60.0
HELLO_SECONDS = 10.0  # in which a new connection must name the token
MOST_STRANGERS = 64  # connected at once


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


class Hub(socketserver.ThreadingTCPServer):
    """Rank 0's server for the others: a thread per connection keeps the last report.

    The thread of the server judges the reports. The end of a connection is judged at once, because
    a launcher ends rank 0 a tenth of a second after another rank has died.
    """

    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, host: str, activity: Activity, timeout_s: float) -> None:
        super().__init__((host, 0), socketserver.BaseRequestHandler)
        self.timeout_s = timeout_s
        self.token = secrets.token_hex(16)
        self._activity = activity
        self._members: list[_Known] = []
        self._slots = threading.BoundedSemaphore(this_process().world_size + MOST_STRANGERS)
        self._told = activity.seconds
        self._leaves = self._is_over = False
        self._judging = threading.Lock()  # the thread that ends the job keeps it
        threading.Thread(
            target=self.serve_forever, args=(POLL_SECONDS,), daemon=True, name="watchdog"
        ).start()

    def __str__(self) -> str:
        return rank_name(0, socket.gethostname())

    def wait_for_members(self) -> None:
        """Wait until all ranks are connected; RuntimeError when one is not in time."""
        if not _wait_until(
            lambda: len(self._members) == this_process().world_size - 1, JOIN_SECONDS
        ):
            missing = set(range(1, this_process().world_size)) - {m.rank for m in self._members}
            raise RuntimeError(f"ranks {sorted(missing)} do not answer the watchdog of rank 0")

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
        self.shutdown()
        self.server_close()

    # socketserver calls the next four.

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Return whether there is room for one more connection."""
        return self._slots.acquire(blocking=False)

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Read one connection to its end, in its own thread."""
        try:
            request.settimeout(HELLO_SECONDS)
            member = self._admit(Link(request))
            request.settimeout(None)
            self._listen(member)
            self._judge()
        finally:
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Send no answer to a stranger."""

    def service_actions(self) -> None:
        """Report to the others and judge them, several times a second."""
        self._activity.tick()
        if self._activity.seconds - self._told > BEAT_SECONDS:
            self.tell()
        self._judge()

    def _admit(self, link: Link) -> _Known:
        """Make a connection a member's if it names the token; before that nothing is parsed."""
        if not hmac.compare_digest(link.read_line(), self.token.encode()):
            raise ValueError("another token")
        hello = link.read()
        report, now = self._activity.report(), self._activity.seconds
        member = _Known(int(hello["rank"]), str(hello["host"]), link, report, now)
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
            if not self._is_over:
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
        self._is_over = True
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
