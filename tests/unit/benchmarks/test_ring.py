"""benchmarks/ring.py: what a rank sends is counted; the sum of two ranks is in docs/blocks."""

from __future__ import annotations

import os
import socket
import time

import pytest

import backend
from benchmarks import ring


def test_only_what_was_sent_over_a_connection_counts():
    with socket.create_server(("127.0.0.1", 0)) as server:
        before = ring.bytes_sent()
        with socket.create_connection(server.getsockname()) as one, server.accept()[0] as other:
            one.sendall(bytes(1000))
            other.sendall(bytes(30))
            received = len(other.recv(1000, socket.MSG_WAITALL)) + len(one.recv(30))
            deadline = time.monotonic() + 10
            # The kernel confirms later than it delivers, and counts the opening of a connection.
            while ring.bytes_sent() - before < received and time.monotonic() < deadline:
                time.sleep(0.01)
            assert received == 1030
            assert 1030 <= ring.bytes_sent() - before <= 1034
        assert ring.bytes_sent() == before


def test_counting_leaves_no_descriptor_open(tmp_path):
    with (tmp_path / "file").open("w"), socket.create_server(("127.0.0.1", 0)):
        ring.bytes_sent()
        before = len(os.listdir("/proc/self/fd"))
        ring.bytes_sent()
        assert len(os.listdir("/proc/self/fd")) == before


def test_one_rank_alone_sends_nothing(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["ring", "--ranks", "1", "--mb", "1"])
    ring.main()
    assert capsys.readouterr().out == (
        "1 ranks sum 1 MB: rank 0 sent 0.00 MB; a ring sends 0.00 MB\n"
    )


def test_several_ranks_run_the_same_command_line(monkeypatch):
    started = []
    monkeypatch.setattr(ring, "run_ranks", lambda *call: started.append(call) or 3)
    monkeypatch.setattr("sys.argv", ["ring", "--ranks", "2"])
    with pytest.raises(SystemExit, match="^3$"):
        ring.main()
    ((command, name, variables),) = started
    assert command[1:] == ["-m", "benchmarks.ring", "--ranks", "2"]
    assert (name, variables) == (backend.use(), {"WORLD_SIZE": "2"})
