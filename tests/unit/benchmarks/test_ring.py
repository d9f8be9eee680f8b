"""benchmarks/ring.py: what a rank sends is counted, and computed by hand."""

import socket
import time

import pytest

import backend
from benchmarks import ring
from benchmarks.ring import Link, ring_bytes, ring_seconds


def test_a_ring_moves_the_bytes_twice_less_one_share_in_messages_around_it_twice():
    assert [ring_bytes(80, members) for members in (1, 2, 4, 8)] == [0, 80, 120, 140]
    # 6 messages of 1 ms and 120 bytes at 1,000 bytes a second.
    assert ring_seconds(80, 4, Link(latency=1e-3, bandwidth=1e3)) == pytest.approx(0.006 + 0.12)


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


def test_several_ranks_run_the_same_command_line(monkeypatch, capsys):
    started = []
    monkeypatch.setattr(ring, "run_ranks", lambda *call: started.append(call) or 3)
    monkeypatch.setattr("sys.argv", ["ring", "--ranks", "2"])
    with pytest.raises(SystemExit, match="^3$"):
        ring.main()
    ((command, name, variables),) = started
    assert command[1:] == ["-m", "benchmarks.ring", "--ranks", "2"]
    assert (name, variables) == (backend.use(), {"WORLD_SIZE": "2"})
    monkeypatch.setattr("sys.argv", ["ring", "--ranks", "1", "--mb", "1"])
    ring.main()
    assert capsys.readouterr().out == (
        "1 ranks sum 1 MB: rank 0 sent 0.00 MB; a ring sends 0.00 MB\n"
    )
