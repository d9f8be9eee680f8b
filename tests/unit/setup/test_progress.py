"""What set-up and the tests say while they go on: on a terminal one line, in a log now and then."""

import re

import pytest

from tests.terminal import run_on_terminal
from utils.screen import state_line
from utils.screen.state_line import StateLine
from utils.screen.words import clock
from utils.setup.pip_output import PipOutput
from utils.setup.suites import percent_done, state_of

PIP = """Looking in indexes: https://example.org/simple
Collecting torch==2.13.0 (from -r requirements/torch.txt (line 2))
  Downloading https://example.org/torch-2.13.0%2Bcpu-cp311-cp311-linux_x86_64.whl (190.2 MB)
  Downloading numpy-2.2.6-cp311-cp311-manylinux_2_17_x86_64.whl.metadata (62 kB)
  Using cached numpy-2.2.6-cp311-cp311-manylinux_2_17_x86_64.whl (16.8 MB)
Collecting six==1.17.0
  Downloading six-1.17.0-py2.py3-none-any.whl (11 kB)
Processing /opt/wheels/tqdm-4.70.1-py3-none-any.whl (from -r requirements/torch.txt (line 9))
Installing collected packages: six, numpy, torch
"""


def test_pips_output_says_what_is_fetched_and_how_much():
    output, told = PipOutput(), []
    for line in PIP.splitlines(keepends=True):
        output.read(line[:20])  # as it comes, in pieces
        output.read(line[20:])
        told.append((output.now, output.fetched()))
    assert told[2] == (
        "downloading torch-2.13.0+cpu (190.2 MB)", "packages: 1, downloaded: 190 MB"
    )  # fmt: skip
    assert told[4] == ("numpy-2.2.6 is in pip's cache", "packages: 2, downloaded: 190 MB")
    assert told[-1] == ("unpacking", "packages: 4, downloaded: 190 MB")


@pytest.mark.parametrize("text", ["", "  Downloading", "  Downloading x (1.2.3 MB)\n", "\0\n"])
def test_other_words_of_pip_change_nothing(text):
    output = PipOutput()
    output.read(text)
    assert output.fetched() == "packages: 0, downloaded: 0 MB"


OUTPUT = b"""collected 300 items

....................F.......................................... [ 24%]
100 [ 99%] of what is printed in a test
......s........................................................ [ 48%]
....."""


def test_how_far_pytest_is_stands_at_the_end_of_its_lines():
    assert percent_done(OUTPUT) == 48
    assert percent_done(b"collected 300 items\n\n...") == 0


def test_the_slower_suite_says_how_long_it_takes():
    assert state_of({"torch": 50, "oneflow": 25}, 120) == (
        "tests: torch 50 %, oneflow 25 %, about 6:00 left; 2:00"
    )
    assert state_of({"torch": 5, "oneflow": 0}, 60) == "tests: torch 5 %, oneflow 0 %; 1:00"


def test_a_log_has_the_state_every_half_minute(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr(state_line.time, "monotonic", lambda: now[0])
    with StateLine() as line:
        for _ in range(500):
            now[0] += 0.2
            line.tell(f"torch: unpacking; {clock(line.seconds())}")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 and re.fullmatch(r"torch: unpacking; 0:3\d", lines[0])


def test_a_terminal_has_one_line_that_leaves_no_trace():
    code = """
from utils.screen.state_line import StateLine
with StateLine() as line:
    for state in ("torch: downloading torch-2.13.0; 190 MB; 0:05", "torch: unpacking"):
        line.tell(state)
print("torch: ready")
"""
    for columns in (20, 80):
        screen = run_on_terminal(code, columns)
        assert screen.shown() == ["torch: ready"]
        assert "torch: unpacking" in screen.seen and max(map(len, screen.seen)) < columns
