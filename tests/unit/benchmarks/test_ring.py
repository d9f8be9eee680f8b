"""benchmarks/ring.py: what a rank sends is counted, and computed by hand."""

import pytest

import backend
from benchmarks import ring
from benchmarks.ring import Link, ring_bytes, ring_seconds


def test_a_ring_moves_the_bytes_twice_less_one_share_in_messages_around_it_twice():
    assert [ring_bytes(80, members) for members in (1, 2, 4, 8)] == [0, 80, 120, 140]
    # 6 messages of 1 ms and 120 bytes at 1,000 bytes a second.
    assert ring_seconds(80, 4, Link(latency=1e-3, bandwidth=1e3)) == pytest.approx(0.006 + 0.12)


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
