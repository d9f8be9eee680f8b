"""What the watchdog notes, and whom it listens to; `tests/distributed` runs it in whole jobs."""

from __future__ import annotations

import json
import socket
import threading
import time
from contextlib import suppress

import pytest

from utils.processes import watchdog
from utils.processes.activity import Activity
from utils.processes.watchdog_link import MAX_LINE_BYTES, Peer


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
        assert report.total == 3
    assert str(activity.report()) == "in setup"


def test_the_phase_of_an_exception_stays_to_be_named():
    activity = Activity()
    with suppress(RuntimeError), activity.phase("saving"):
        raise RuntimeError
    assert str(activity.report()) == "in saving"


@pytest.fixture
def pair():
    """A peer and the socket at its other end."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        other = socket.create_connection(server.getsockname())
        peer = Peer(server.accept()[0])
    yield peer, other
    peer.socket.close()
    other.close()


def sent(other: socket.socket, peer: Peer, data: bytes) -> list:
    other.sendall(data)
    peer.socket.setblocking(True)  # until it has come
    return peer.read()


def test_lines_are_messages_however_they_are_cut(pair):
    peer, other = pair
    assert peer.read() == []
    assert sent(other, peer, b'{"a": 1}\n{"b"') == [{"a": 1}]
    assert sent(other, peer, b": 2}\n") == [{"b": 2}]
    other.close()
    with pytest.raises(EOFError):
        peer.read()


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n", b"[1]\n", b"x" * (MAX_LINE_BYTES + 1)])
def test_what_is_not_the_protocol_is_refused(pair, data):
    with pytest.raises(ValueError):
        sent(pair[1], pair[0], data)


def test_rank_0_admits_only_those_who_know_the_token(monkeypatch):
    for name, value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    heard = []

    def all_gather(array):
        if array.dtype != "uint8":
            return [array, array + 1]
        threading.Thread(target=connect, args=(json.loads(array.tobytes()),)).start()
        return [array]

    def connect(invitation):
        address = "127.0.0.1", invitation["port"]
        for hello in (b"GET / HTTP/1.1\r\n", b'{"token": "0", "rank": 1, "host": "x"}\n', b"[]\n"):
            with socket.create_connection(address) as stranger:
                stranger.sendall(hello)
                heard.append(stranger.recv(1))
        report = {"phase": "end", "step": 0, "total": 0, "idle_s": 0, "may_wait": False}
        with socket.create_connection(address) as member:
            for message in (
                {"token": invitation["token"], "rank": 1, "host": "h"},
                {"goodbye": 0, **report},
            ):
                member.sendall(json.dumps(message).encode() + b"\n")
            with member.makefile() as lines:
                heard.append(json.loads(lines.readlines()[-1]))

    watchdog.start(60, all_gather)
    watchdog.leave(0)  # returns once rank 1 has said goodbye
    assert heard == [b"", b"", b"", {"goodbye": 0}]  # strangers are left without an answer


def test_the_time_for_which_a_job_is_stopped_does_not_count(monkeypatch):
    watcher = watchdog._Watcher.__new__(watchdog._Watcher)  # without its thread
    long_ago = time.monotonic() - 2 * watchdog.STOPPED_SECONDS
    monkeypatch.setattr(watchdog._activity, "_last", long_ago)
    watcher._looked = long_ago
    assert watcher.was_stopped()
    assert watchdog._activity.report().idle_s < watchdog.STOPPED_SECONDS
    monkeypatch.setattr(watchdog._activity, "_last", long_ago)
    assert not watcher.was_stopped()  # looked just now: only the main thread stands still
    assert watchdog._activity.report().idle_s > watchdog.STOPPED_SECONDS
