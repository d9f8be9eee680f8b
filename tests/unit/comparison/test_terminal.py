"""What compare.py says while a run goes on: the time, on one line of a terminal or now and then."""

import io
import sys
from pathlib import Path

import pytest

from utils.comparison import terminal
from utils.comparison.plan import Cell, Turn
from utils.comparison.terminal import Terminal

TURN = Turn(Cell("torch", "plain", 8), 1)


class Stream(io.StringIO):
    def __init__(self, is_terminal):
        super().__init__()
        self.isatty = lambda: is_terminal


@pytest.fixture
def now(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(terminal.time, "monotonic", lambda: now[0])
    monkeypatch.setenv("COLUMNS", "80")
    return now


def follow(stream, now, seconds):
    shown = Terminal(stream)
    shown.starting(TURN, 2, 8)
    for _ in range(seconds):
        now[0] += 1
        shown.going_on()
    return stream.getvalue()


def test_a_log_has_a_line_every_half_minute(now):
    lines = follow(Stream(False), now, 95).splitlines()
    assert lines == [f"{TURN.name} (2 of 8): {told} ..." for told in ("0:30", "1:00", "1:30")]


def test_a_terminal_has_one_line_that_goes_on(now):
    states = follow(Stream(True), now, 65).split(terminal.CLEAR_LINE)[1:]
    assert states[0] == f"{TURN.name} (2 of 8): 0:00 ..." and len(states) == 66
    assert states[-1] == f"{TURN.name} (2 of 8): 1:05 ..."


def test_a_narrow_terminal_does_not_wrap_it(now, monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    states = follow(Stream(True), now, 3).split(terminal.CLEAR_LINE)[1:]
    assert max(map(len, states)) == 19


def test_the_line_to_go_on_works_in_the_folder_where_it_began(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/a b/compare.py", "--rounds", "4"])
    Terminal(stream := Stream(False)).interrupted(Path("runs/compare/exp"))
    words = f"{sys.executable} '/a b/compare.py' --resume runs/compare/exp\n"
    assert stream.getvalue().endswith(f"continue with {words}")
