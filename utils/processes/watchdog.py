"""Ends the whole job when one of its processes dies, is lost or stands still, and says which.

`start` connects every rank to rank 0. A thread of each rank tells what it is doing once a second;
the end of a connection is the end of a rank. Whoever does long work says what:

    with watchdog.phase("validation"):
        for batch in loader:
            watchdog.progress()

Both cost about a microsecond, and do nothing else where `start` was not called.
"""

from __future__ import annotations

import faulthandler
import hmac
import json
import os
import secrets
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from backend.processes import processes
from utils.processes.activity import Activity, Report
from utils.processes.exit_status import (
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_SUSPENDED,
    end_process,
)
from utils.processes.process_family import delay_abort
from utils.processes.watchdog_link import Peer, connect, listen

BEAT_SECONDS = 1.0
STOPPED_SECONDS = 10.0  # between two looks, which are a fifth of a second apart
POLL_SECONDS = 0.2
LINGER_SECONDS = 2.0  # for the others to hear why the job ends
JOIN_SECONDS = 60.0
AGREED_ENDS = (EXIT_DONE, EXIT_SUSPENDED)  # of one rank, while others may still be at work

AllGather = Callable[[np.ndarray], list[np.ndarray]]

_activity = Activity()
_watcher: _Watcher | None = None

progress = _activity.progress


@contextmanager
def phase(name: str) -> Iterator[None]:
    """What this process does meanwhile; the phase around it goes on afterwards."""
    with _activity.phase(name):
        _tell()
        yield
    _tell()


def _tell() -> None:
    """At once, since a second later this rank may be gone."""
    if _watcher is not None:
        _watcher.tell()


def start(timeout_s: float, all_gather: AllGather) -> None:
    """Watch over the job that several processes do.

    Args:
        timeout_s: after which a rank without a sign of progress ends the job.
        all_gather: that of `backend.dist`, which must have been started.

    Raises:
        RuntimeError: a rank did not connect in time.
    """
    global _watcher
    assert _watcher is None
    place = processes()
    _activity.touch()
    delay_abort()
    local_ranks = all_gather(np.array([place.local_rank], np.int64))
    machines = sum(int(local_rank[0]) == 0 for local_rank in local_ranks)
    _watcher = (_be_hub if place.is_main else _be_member)(timeout_s, machines, all_gather)


def leave(code: int) -> None:
    """Tell the others that this process ends with an exit code.

    When all is well it returns once all ranks have come here, so that none loses its connections
    before. Otherwise the others end too.
    """
    global _watcher
    if _watcher is not None:
        _watcher.leaving = code
        _watcher.thread.join(None if code in AGREED_ENDS else 2 * LINGER_SECONDS)
        _watcher = None


def _be_hub(timeout_s: float, machines: int, all_gather: AllGather) -> _Hub:
    listener, token = listen(machines), secrets.token_hex(16)
    port = listener.getsockname()[1]
    invitation = json.dumps({"port": port, "token": token}).encode()
    all_gather(np.frombuffer(invitation, np.uint8))
    hub = _Hub(timeout_s, listener, token)
    hub.wait_for_members()
    return hub


def _be_member(timeout_s: float, machines: int, all_gather: AllGather) -> _Member:
    invitation = json.loads(all_gather(np.zeros(0, np.uint8))[0].tobytes())
    peer = connect(machines, invitation["port"])
    peer.send(token=invitation["token"], rank=processes().rank, host=socket.gethostname())
    return _Member(timeout_s, peer)


def _say(text: str) -> None:
    """One line on standard error, complete, also when the main thread is stuck in writing."""
    os.write(2, f"\nerror: {text}\n".encode())


def _name(rank: int, host: str) -> str:
    return f"rank {rank} ({host})"


class _Watcher:
    """Watches over this process; a thread calls `tick` again and again."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self.leaving: int | None = None  # the exit code, set by the main thread
        self._looked = time.monotonic()
        self.thread = threading.Thread(target=self._run, daemon=True, name="watchdog")
        self.thread.start()

    def _run(self) -> None:
        while self.leaving is None:
            self.tick()
        if self.leaving in AGREED_ENDS:
            self.wait_for_others(self.leaving)
        else:
            self.end_others(self.leaving)
        self.close()

    def was_stopped(self) -> bool:
        """Whether this process stood still as a whole since the last look, as by SIGSTOP.

        Slurm suspends jobs so. The time does not count.
        """
        before, self._looked = self._looked, time.monotonic()
        stopped = self._looked - before > STOPPED_SECONDS
        if stopped:
            _activity.touch()
        return stopped

    def tick(self) -> None:
        raise NotImplementedError

    def tell(self) -> None:
        raise NotImplementedError

    def wait_for_others(self, code: int) -> None:
        raise NotImplementedError

    def end_others(self, code: int) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class _Member(_Watcher):
    """A rank that reports to rank 0."""

    def __init__(self, timeout_s: float, hub: Peer) -> None:
        self._hub = hub
        self._host = os.environ["MASTER_ADDR"]
        self._all_leave = False
        self._doing = "in setup"  # rank 0
        self._heard = self._told = time.monotonic()
        super().__init__(timeout_s)

    def tick(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._hub.socket, selectors.EVENT_READ)
            if selector.select(POLL_SECONDS):
                self._listen()
        if time.monotonic() - self._told > BEAT_SECONDS:
            self.tell()
        if self.was_stopped():
            self._heard = time.monotonic()
        silence = time.monotonic() - self._heard
        if silence > self.timeout_s:
            self._end("says nothing")

    def tell(self) -> None:
        self._told = time.monotonic()
        self._hub.send(**_activity.report()._asdict())

    def _listen(self) -> None:
        try:
            messages = self._hub.read()
        except EOFError:
            return self._end("died or was killed")
        except OSError as error:
            return self._end(f"is lost ({error.strerror})")
        self._heard = time.monotonic()
        for message in messages:
            if "end" in message:
                self._end_as_told(**message)
            self._all_leave = self._all_leave or "goodbye" in message
            self._doing = message.get("doing", self._doing)

    def _end(self, what: str) -> None:
        """Without rank 0, which nobody else says; once a machine is enough."""
        told = f"told {time.monotonic() - self._heard:.1f} s before"
        if processes().rank == 1 or processes().local_rank == 0:
            _say(f"{_name(0, self._host)} {what} {self._doing} ({told}); the job ends")
        end_process(EXIT_FAILED)

    def _end_as_told(self, end: str, code: int, show_stack: int | None) -> None:
        if processes().local_rank == 0:  # once a machine
            _say(end)
        if show_stack == processes().rank:
            faulthandler.dump_traceback()
        end_process(code)

    def wait_for_others(self, code: int) -> None:
        self._hub.send(goodbye=code, **_activity.report()._asdict())
        while not self._all_leave:
            self.tick()

    def end_others(self, code: int) -> None:
        self._hub.send(goodbye=code, **_activity.report()._asdict())
        self._hub.finish()
        _drain([self._hub])

    def close(self) -> None:
        self._hub.socket.close()


@dataclass
class _Known:
    """What rank 0 knows of another rank."""

    rank: int
    host: str
    peer: Peer
    report: Report
    heard: float = field(default_factory=time.monotonic)
    is_leaving: bool = False

    def __str__(self) -> str:
        return _name(self.rank, self.host)

    @property
    def last_told(self) -> str:
        return f"{self.report} (told {time.monotonic() - self.heard:.1f} s before)"

    def now(self) -> Report:
        """Its report, as old as it is."""
        return self.report._replace(
            idle_s=self.report.idle_s + time.monotonic() - self.heard,
        )


class _Hub(_Watcher):
    """Rank 0, which hears all ranks and ends the job."""

    def __init__(self, timeout_s: float, listener: socket.socket, token: str) -> None:
        self._listener, self._token = listener, token
        self._members: list[_Known] = []
        self._joined = threading.Event()
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ)
        self._told = time.monotonic()
        super().__init__(timeout_s)

    def wait_for_members(self) -> None:
        if not self._joined.wait(JOIN_SECONDS):
            missing = set(range(1, processes().world_size)) - {m.rank for m in self._members}
            raise RuntimeError(f"ranks {sorted(missing)} do not answer the watchdog of rank 0")

    def tick(self) -> None:
        for key, _ in self._selector.select(POLL_SECONDS):
            if key.fileobj is self._listener:
                peer = Peer(self._listener.accept()[0])
                self._selector.register(peer.socket, selectors.EVENT_READ, peer)
            elif isinstance(key.data, _Known):
                self._hear(key.data)
            else:
                self._admit(key.data)
        if time.monotonic() - self._told > BEAT_SECONDS:
            self.tell()
        self._look_for_standstill()

    def tell(self) -> None:
        self._told = time.monotonic()
        for member in self._members:
            member.peer.send(doing=str(_activity.report()))

    def _admit(self, peer: Peer) -> None:
        """A connection becomes a member's by naming the token; any other is closed."""
        try:
            messages = peer.read()
            if not messages:
                return
            hello = messages[0]
            if not hmac.compare_digest(str(hello["token"]).encode(), self._token.encode()):
                raise ValueError("another token")
            member = _Known(int(hello["rank"]), str(hello["host"]), peer, _activity.report())
        except (EOFError, OSError, ValueError, KeyError):
            return self._forget(peer)
        self._selector.modify(peer.socket, selectors.EVENT_READ, member)
        self._members.append(member)
        if len(self._members) == processes().world_size - 1:
            self._joined.set()
        self._note(member, messages[1:])

    def _hear(self, member: _Known) -> None:
        try:
            self._note(member, member.peer.read())
        except EOFError:
            return self.end_job(f"{member} died or was killed {member.last_told}; the job ends")
        except (OSError, ValueError) as error:
            return self.end_job(f"{member} is lost {member.last_told}: {error}; the job ends")

    def _note(self, member: _Known, messages: list[dict[str, Any]]) -> None:
        for message in messages:
            goodbye = message.pop("goodbye", None)
            member.report, member.heard = Report(**message), time.monotonic()
            if goodbye is not None:
                self._dismiss(member, goodbye)

    def _dismiss(self, member: _Known, code: int) -> None:
        if code in AGREED_ENDS:
            member.is_leaving = True
        elif code == EXIT_INTERRUPTED:
            time.sleep(LINGER_SECONDS / 2)  # Ctrl-C comes to all ranks, and this one says so
            if self.leaving is None:
                self.end_job(f"{member} was interrupted {member.report}; the job ends", code)
        else:
            text = f"{member} ended with exit code {code} {member.report}, see its message above"
            self.end_job(f"{text}; the job ends", code)

    def _forget(self, peer: Peer) -> None:
        self._selector.unregister(peer.socket)
        peer.socket.close()

    def _look_for_standstill(self) -> None:
        if self.was_stopped():
            for member in self._members:
                member.heard, member.report = time.monotonic(), member.report._replace(idle_s=0)
        ranks = [(m.rank, str(m), m.now()) for m in self._members if not m.is_leaving]
        if self.leaving is None:
            ranks.append((0, _name(0, socket.gethostname()), _activity.report()))
        if max((report.idle_s for _, _, report in ranks), default=0) <= self.timeout_s:
            return
        # The others stand still too, but in a call that may wait for it, or further on.
        rank, name, report = min(
            ((r, n, x) for r, n, x in ranks if x.idle_s > self.timeout_s / 2),
            key=lambda entry: (entry[2].may_wait, entry[2].total, -entry[2].idle_s),
        )
        still = f"no progress for {report.idle_s:.0f} s {report} (--timeout {self.timeout_s:g})"
        self.end_job(f"{name}: {still}; the job ends", EXIT_FAILED, rank)

    def end_job(self, text: str, code: int = EXIT_FAILED, show_stack: int | None = None) -> None:
        """Say why, tell all members to end, and end."""
        _say(text)
        self._tell_all(end=text, code=code, show_stack=show_stack)
        if show_stack == processes().rank:
            faulthandler.dump_traceback()
        end_process(code)

    def wait_for_others(self, code: int) -> None:
        while not all(member.is_leaving for member in self._members):
            self.tick()
        self._tell_all(goodbye=code)

    def end_others(self, code: int) -> None:
        name = _name(0, socket.gethostname())
        text = f"{name} ended with exit code {code} {_activity.report()}; the job ends"
        self._tell_all(end=text, code=code, show_stack=None)

    def close(self) -> None:
        for connection in [self._listener, *(member.peer.socket for member in self._members)]:
            connection.close()
        self._selector.close()

    def _tell_all(self, **message: Any) -> None:
        """A last message; returns when all have heard it, or LINGER_SECONDS later."""
        peers = [member.peer for member in self._members]
        for peer in peers:
            peer.send(**message)
            peer.finish()
        _drain(peers)


def _drain(peers: list[Peer]) -> None:
    """Read until the other ends are closed: closing with something unread would lose the rest."""
    deadline = time.monotonic() + LINGER_SECONDS
    with selectors.DefaultSelector() as selector:
        for peer in peers:
            selector.register(peer.socket, selectors.EVENT_READ, peer)
        while selector.get_map() and time.monotonic() < deadline:
            for key, _ in selector.select(POLL_SECONDS):
                try:
                    key.data.read()
                except (EOFError, OSError, ValueError):
                    selector.unregister(key.fileobj)
