"""What the watchdog notes, and whom it listens to; `tests/distributed` runs it in whole jobs."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, suppress
from typing import Any

import pytest

from backend import collectives
from utils.processes import activity as activity_module
from utils.processes import watchdog, watchdog_hub
from utils.processes.activity import Activity, Report, furthest_behind
from utils.processes.watchdog_link import MAX_LINE_BYTES, Link

SECONDS = 20  # a limit against hanging


def test_a_phase_inside_another_counts_its_own_steps():
    activity = Activity()
    assert str(activity.report()) == "in setup"
    with activity.phase("training"):
        activity.progress()
        with activity.phase("validation"):
            activity.progress()
            activity.progress()
            assert str(activity.report()) == "in validation, step 2"
        report = activity.report()
        assert str(report) == "in training, step 1"
        assert report.changes == 3
    assert str(activity.report()) == "in setup"


def test_the_phase_of_an_exception_stays_to_be_named():
    activity = Activity()
    with suppress(RuntimeError), activity.phase("saving"):
        raise RuntimeError
    assert str(activity.report()) == "in saving"


def still(collectives: int, changes: int = 1, step: int = 3, idle_s: float = 100.0) -> Report:
    return Report("training", step, changes, collectives, idle_s)


@pytest.mark.parametrize(
    ("reports", "rank"),
    [
        ({0: still(8), 1: still(7), 2: still(8)}, 1),  # the others wait for it in their eighth
        ({0: still(8), 1: still(7, step=9)}, 1),  # whatever it counted before
        ({0: still(8, changes=2, step=0), 1: still(8)}, 1),  # it has not left the phase
        ({0: still(8, step=4), 1: still(8)}, 1),
        ({0: still(8, idle_s=100.2), 1: still(8)}, 0),  # all are as far: who was first to stop
        ({0: still(8), 1: still(6, idle_s=1.0)}, 0),  # rank 1 goes on, as in a long validation
        ({0: still(8, idle_s=59.0), 1: still(7, idle_s=60.0)}, None),
        ({}, None),
    ],
)
def test_of_ranks_that_stand_still_the_one_behind_the_others_is_named(reports, rank):
    assert furthest_behind(reports, 60.0) == rank


def test_a_report_counts_collectives_and_survives_the_way_to_rank_0():
    before = Activity().report()
    collectives.begin()
    report = Activity().report()
    assert report.position > before.position
    assert Report.of(json.loads(json.dumps(report._asdict()))) == report
    with pytest.raises((LookupError, TypeError, ValueError)):
        Report.of({**report._asdict(), "step": []})


@pytest.fixture
def pair():
    """A link and the socket at its other end."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        other = socket.create_connection(server.getsockname())
        link = Link(server.accept()[0])
    link.socket.settimeout(0.1)
    yield link, other
    link.socket.close()
    other.close()


def test_lines_are_messages_however_they_are_cut(pair):
    link, other = pair
    other.sendall(b'{"a": 1}\n{"b"')
    assert link.read() == {"a": 1}
    with pytest.raises(TimeoutError) as timeout:
        link.read()
    assert timeout.value.errno is None
    other.sendall(b": 2}\n{}\n")
    assert (link.read(), link.read()) == ({"b": 2}, {})
    other.close()
    with pytest.raises(EOFError):
        link.read()


@pytest.mark.parametrize(
    "data",
    [b"GET / HTTP/1.1\r\n", b"[1]\n", b"[" * 3000 + b"\n", b"x" * (MAX_LINE_BYTES + 1)],
)
def test_what_is_not_the_protocol_is_refused(pair, data):
    pair[1].sendall(data)
    with pytest.raises(ValueError):
        pair[0].read()


class JobEndedError(Exception):
    """Rank 0 would have ended its process, which is pytest's own."""


@pytest.fixture
def end_fails_the_test(monkeypatch):
    """Rank 0 ends a job from any of its threads; here the main thread gets an exception."""

    def fail(number, frame):
        raise JobEndedError

    def end(code, show_stack=None):
        signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR2)

    before = signal.signal(signal.SIGUSR2, fail)
    monkeypatch.setattr(watchdog_hub, "end_process", end)
    monkeypatch.setattr(watchdog, "_watcher", None)
    yield
    signal.signal(signal.SIGUSR2, before)


@pytest.fixture
def invited(monkeypatch, end_fails_the_test):
    """Start rank 0 of two; rank 1 is a function of the invitation, in a thread."""
    for name, value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)

    def start(connect):
        threads = []

        def all_gather(array):
            if array.dtype != "uint8":
                return [array, array + 1]
            threads.append(threading.Thread(target=connect, args=(json.loads(array.tobytes()),)))
            threads[0].start()
            return [array]

        watchdog.start(60, all_gather)
        watchdog.leave(0)  # returns once rank 1 has said goodbye
        threads[0].join(SECONDS)

    return start


GOODBYE = json.dumps({"goodbye": 0, **still(0)._asdict()}).encode() + b"\n"


def hello(invitation: dict[str, Any]) -> bytes:
    """Return what rank 1 sends first."""
    return f'{invitation["token"]}\n{{"rank": 1, "host": "h"}}\n'.encode()


def end_well(invitation: dict[str, Any]) -> Any:
    """Join as rank 1, say goodbye; return the last message of rank 0."""
    with socket.create_connection(("127.0.0.1", invitation["port"])) as member:
        member.sendall(hello(invitation) + GOODBYE)
        with member.makefile() as answers:
            return json.loads(answers.readlines()[-1])


def heard(stranger: socket.socket) -> bytes:
    """Return what rank 0 sent a stranger before it hung up."""
    stranger.settimeout(SECONDS)
    with suppress(ConnectionResetError):
        return b"".join(iter(lambda: stranger.recv(100), b""))
    return b""


ATTACKS = {
    "nothing": lambda token: b"",
    "another protocol": lambda token: b"GET / HTTP/1.1\r\n\r\n",
    "brackets without an end": lambda token: b"[" * 200_000,
    "another token": lambda token: b"0" * len(token) + b"\n{}\n",
    "part of the token": lambda token: token[:-1],
    "a longer token": lambda token: token + b"0\n",
    "a null byte": lambda token: token + b"\0\n",
}


def test_of_strangers_nothing_is_parsed_and_none_gets_an_answer(invited, monkeypatch):
    """Each of them is there before rank 1, which can join all the same."""
    parsed, loads = [], json.loads
    monkeypatch.setattr(json, "loads", lambda line: parsed.append(line) or loads(line))
    found = {}

    def connect(invitation):
        parsed.clear()
        address, token = ("127.0.0.1", invitation["port"]), invitation["token"].encode()
        strangers = {name: socket.create_connection(address) for name in ATTACKS}
        threads = threading.active_count()
        for name, stranger in strangers.items():
            with suppress(OSError):  # rank 0 has hung up
                stranger.sendall(ATTACKS[name](token))
        time.sleep(0.5)
        found["parsed"], found["threads"] = parsed[:], threading.active_count() - threads
        found["end"] = end_well(invitation)
        found["heard"] = {name: heard(stranger) for name, stranger in strangers.items()}
        for stranger in strangers.values():
            stranger.close()

    invited(connect)
    assert found.pop("heard") == dict.fromkeys(ATTACKS, b"")
    assert found == {"parsed": [], "threads": 0, "end": {"goodbye": 0}}


HELLOS = [
    b"[]",
    b"{}",
    b"[" * 4000,
    b'{"rank": 0, "host": "h"}',
    b'{"rank": 2, "host": "h"}',
    b'{"rank": 1e999, "host": "h"}',
    b'{"rank": ' + b"1" * 4300 + b"}",
    b"x" * 100_000,
]


def test_who_knows_the_token_but_is_no_missing_rank_is_turned_away(invited):
    found = []

    def connect(invitation):
        for hello in HELLOS:
            with socket.create_connection(("127.0.0.1", invitation["port"])) as stranger:
                with suppress(OSError):
                    stranger.sendall(invitation["token"].encode() + b"\n" + hello + b"\n")
                found.append(heard(stranger))
        found.append(end_well(invitation))

    invited(connect)
    assert found == [*[b""] * len(HELLOS), {"goodbye": 0}]


def test_a_second_rank_1_is_turned_away(invited):
    found = []

    def connect(invitation):
        address = "127.0.0.1", invitation["port"]
        with socket.create_connection(address) as second, socket.create_connection(address) as rank:
            rank.sendall(hello(invitation))
            assert rank.recv(1) == b"{"
            with suppress(OSError):
                second.sendall(hello(invitation))
            found.append(heard(second))
            rank.sendall(GOODBYE)
            with rank.makefile() as answers:
                found.append(json.loads(answers.readlines()[-1]))

    invited(connect)
    assert found == [b"", {"goodbye": 0}]


def wait_until_closed(address: tuple[str, int]) -> None:
    """Connect to a port until nobody can."""
    deadline = time.monotonic() + SECONDS
    with pytest.raises(ConnectionRefusedError):
        while time.monotonic() < deadline:
            with suppress(ConnectionResetError):  # it came while the port was being closed
                socket.create_connection(address).close()


def test_when_all_ranks_are_there_nobody_can_connect(invited):
    found = []

    def connect(invitation):
        address = "127.0.0.1", invitation["port"]
        with socket.create_connection(address) as member:
            member.sendall(hello(invitation))
            assert member.recv(1) == b"{"
            wait_until_closed(address)
            member.sendall(GOODBYE)
            with member.makefile() as answers:
                found.append(json.loads(answers.readlines()[-1]))

    invited(connect)
    assert found == [{"goodbye": 0}]


def test_a_rank_that_dies_ends_the_job(invited):
    def connect(invitation):
        address = "127.0.0.1", invitation["port"]
        with socket.create_connection(address) as member:
            member.sendall(hello(invitation))
            assert member.recv(1) == b"{"
            wait_until_closed(address)

    with pytest.raises(JobEndedError):
        invited(connect)


FLOOD = """
import json, resource, socket, sys, threading, time
from contextlib import suppress
from utils.processes import watchdog_link

hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # few files are for rank 0 alone
invitation, goodbye = map(json.loads, sys.argv[1:])
over = threading.Event()

def flood():
    strangers = []
    while not over.is_set():
        with suppress(OSError):
            strangers.append(socket.create_connection(("127.0.0.1", invitation["port"]), timeout=1))
        while len(strangers) > 100:
            strangers.pop(0).close()

flooding = threading.Thread(target=flood)
flooding.start()
time.sleep(0.5)
try:
    link = watchdog_link.connect(1, invitation["port"], invitation["token"], rank=1, host="h")
finally:
    over.set()
    flooding.join()
link.send(**goodbye)
with link.socket.makefile() as answers:
    print(answers.readlines()[-1])
"""


def test_a_rank_joins_in_a_flood_of_connections_when_files_are_short(invited):
    """The flood goes on until the rank has joined; rank 0 may open few more files than it has."""
    found = []

    def connect(invitation):  # in a process that has files enough
        words = (json.dumps(invitation), GOODBYE.decode())
        command = [sys.executable, "-c", FLOOD, *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
        found.append(done.stdout.strip() or done.stderr)

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = max(map(int, os.listdir("/proc/self/fd")))
    with ExitStack() as stack:  # no number below is free
        while stack.enter_context(open(os.devnull)).fileno() < used:
            pass
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 30, hard))
        try:
            invited(connect)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert found == ['{"goodbye": 0}']


def test_the_time_for_which_a_job_is_stopped_does_not_count(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(activity_module.time, "monotonic", lambda: now[0])
    activity = Activity()
    now[0] += 3600  # SIGSTOP: the thread that looks stands still too
    activity.tick()
    assert activity.report().idle_s <= activity_module.LONGEST_TICK_SECONDS
    activity.progress()
    for _ in range(100):  # it looks again and again: only the main thread stands still
        now[0] += 0.2
        activity.tick()
    assert activity.report().idle_s == pytest.approx(20)
