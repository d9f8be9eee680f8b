"""A bar, and lines beside it, on a terminal; lines alone where there is none."""

import io
import logging
import sys

import pytest

from duet.utils import progress
from duet.utils.progress import LineHandler, Progress


class Terminal(io.StringIO):
    """What is written to a terminal."""

    def isatty(self):
        return True


def test_a_line_takes_the_place_of_a_bar_which_is_drawn_again(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    line = logging.makeLogRecord({"msg": "compiled the step in 12 s"})
    with Progress(9, "epoch 1/3", "batches", 4) as bar:
        bar.update("box 0.1234")
        LineHandler(terminal).emit(line)
    before, after = terminal.getvalue().split("compiled the step in 12 s\n")
    assert before.endswith(progress.CLEAR_LINE)  # of whichever rank the bar is
    assert "epoch 1/3 |" in before and "epoch 1/3 |" in after
    assert after.rpartition("\r")[2].strip() == ""  # the bar leaves no trace


@pytest.fixture
def clock(monkeypatch):
    """Time that passes only when it is told to."""
    now = [100.0]
    monkeypatch.setattr("tqdm.std.time", lambda: now[0])
    return now


def test_without_a_terminal_a_line_comes_every_half_minute(clock, caplog):
    caplog.set_level(logging.INFO)
    with Progress(100, "epoch 3/9", "batches", done=10) as work:
        for _ in range(90):
            clock[0] += 4
            work.update("box 0.5")
    lines = [record.getMessage() for record in caplog.records]
    # After 32 s eight batches are done, and 82 are left.
    assert lines[0] == "epoch 3/9: 18 of 100 batches, 05:28 left, box 0.5"
    assert len(lines) == 90 * 4 // 32


def test_only_the_first_rank_shows_progress(clock, caplog, monkeypatch):
    caplog.set_level(logging.INFO)
    for name, value in (("RANK", "1"), ("LOCAL_RANK", "1"), ("WORLD_SIZE", "2")):
        monkeypatch.setenv(name, value)
    with Progress(9, "validating", "batches") as work:
        clock[0] += 99
        work.update()
    assert caplog.records == []
