"""What the watchdog notes, and whom it listens to; `tests/distributed` runs it in whole jobs."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import suppress

import pytest

from backend import collectives
from utils.processes import activity as activity_module
from utils.processes import watchdog, watchdog_hub
from utils.processes.activity import Activity, Report, furthest_behind
from utils.processes.watchdog_link import MAX_LINE_BYTES, Link


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


@pytest.fixture
def invited(monkeypatch):
    """Start rank 0 of two; rank 1 is a function of the invitation, in a thread."""
    for name, value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)

    def start(connect):
        def all_gather(array):
            if array.dtype != "uint8":
                return [array, array + 1]
            threading.Thread(target=connect, args=(json.loads(array.tobytes()),)).start()
            return [array]

        watchdog.start(60, all_gather)
        watchdog.leave(0)  # returns once rank 1 has said goodbye

    return start


def end_well(invitation):
    """Join as rank 1, say goodbye; return the last message of rank 0."""
    with socket.create_connection(("127.0.0.1", invitation["port"])) as member:
        hello, goodbye = {"rank": 1, "host": "h"}, {"goodbye": 0, **still(0)._asdict()}
        lines = invitation["token"], json.dumps(hello), json.dumps(goodbye)
        member.sendall("".join(f"{line}\n" for line in lines).encode())
        with member.makefile() as answers:
            return json.loads(answers.readlines()[-1])


def test_rank_0_admits_only_those_who_know_the_token(invited):
    heard = []

    def connect(invitation):
        address = "127.0.0.1", invitation["port"]
        token = invitation["token"].encode()
        for hello in (b"GET / HTTP/1.1\r\n", b"0" * len(token) + b"\n{}\n", token + b"\n[]\n"):
            with socket.create_connection(address) as stranger:
                stranger.sendall(hello)
                heard.append(stranger.recv(1))
        heard.append(end_well(invitation))

    invited(connect)
    assert heard == [b"", b"", b"", {"goodbye": 0}]  # strangers are left without an answer


def test_nothing_of_a_stranger_is_parsed_and_no_more_of_them_are_heard_than_there_are_places(
    invited, monkeypatch
):
    monkeypatch.setattr(watchdog_hub, "MOST_STRANGERS", 0)
    monkeypatch.setattr(watchdog_hub, "HELLO_SECONDS", 0.5)
    parsed, loads = [], json.loads
    monkeypatch.setattr(json, "loads", lambda line: parsed.append(line) or loads(line))
    heard = []

    def connect(invitation):
        address = "127.0.0.1", invitation["port"]
        parsed.clear()
        strangers = [socket.create_connection(address) for _ in range(3)]
        strangers[0].sendall(b'{"token": "0"}\n')
        heard.append(strangers[0].recv(1))
        heard.append(strangers[2].recv(1))  # no free slot, or no hello in time
        heard.append(strangers[1].recv(1))
        assert parsed == []
        heard.append(end_well(invitation))
        for stranger in strangers:
            stranger.close()

    invited(connect)
    assert heard == [b"", b"", b"", {"goodbye": 0}]


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
