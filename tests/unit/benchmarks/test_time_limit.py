"""benchmarks/time_limit.py: a limit on any clock, and commands that end with all they started."""

import os
import sys
import time
from pathlib import Path

from benchmarks.time_limit import TimeLimit, run_within

STARTS_ANOTHER = """
import subprocess, sys, time
other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
open(sys.argv[1], "w").write(str(other.pid))
time.sleep(60)
"""


def test_time_is_over_after_the_minutes_of_the_clock():
    moments = iter([100.0, 100.0, 160.0, 189.0, 190.0])
    limit = TimeLimit(1.5, lambda: next(moments))
    assert (limit.left(), limit.seconds()) == (90.0, 60.0)
    assert [limit.is_over(), limit.is_over()] == [False, True]


def test_without_a_limit_it_is_never_over():
    limit = TimeLimit(None, clock=lambda: 0.0)
    assert limit.left() == float("inf") and not limit.is_over()


def test_a_command_returns_its_code_and_prints_into_a_file(tmp_path):
    line = [sys.executable, "-c", "print(__import__('os').environ['A']); raise SystemExit(3)"]
    for seconds in (60.0, float("inf")):
        assert run_within(line, {**os.environ, "A": "b"}, seconds, tmp_path / "out") == 3
    assert (tmp_path / "out").read_text() == "b\n"


def test_a_command_that_takes_too_long_ends_with_what_it_started(tmp_path):
    path = tmp_path / "pid"
    start = time.monotonic()
    line = [sys.executable, "-c", STARTS_ANOTHER, str(path)]
    assert run_within(line, os.environ, 2.0, None) is None
    assert time.monotonic() - start < 50  # it did not wait for their own end
    assert not Path("/proc", path.read_text()).exists()
