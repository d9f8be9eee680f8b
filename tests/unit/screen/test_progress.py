"""A bar, and lines beside it, on terminals of all widths; lines alone where there is none."""

import logging

import pytest

from tests.unit.screen.terminal import run_on_terminal
from utils.screen import progress
from utils.screen.progress import Progress

LOSSES = "box 0.1234  obj 0.2345  cls 0.0456"
# Lines of all kinds in the middle of a bar that is drawn at every step.
WORK = """
import logging, sys, time, warnings
from utils.screen.progress import begin_lines
from utils.screen.progress import Progress
import tqdm
begin_lines("", logging.INFO)
with Progress(9999, "epoch 100/300", "batches", 4995) as bar:
    bar._bar.mininterval = bar._bar.maxinterval = 0
    for step in range(9):
        bar.update({note!r})
        if step == 2:
            logging.getLogger("train").info("compiled the step in 12 s")
        if step == 4:
            logging.getLogger("train").warning("update skipped: %s", "a loss is not finite")
        if step == 6:
            warnings.warn("deprecated")
logging.getLogger("train").info("done")
"""


@pytest.mark.parametrize("columns", [30, 80, 200])
@pytest.mark.parametrize("note", [LOSSES, "a_loss_of_a_very_long_name 0.1234  " * 8])
def test_no_line_breaks_the_bar_and_none_is_broken(columns, note):
    screen = run_on_terminal(WORK.format(note=note), columns)
    lines = screen.shown()
    assert lines[0] == "compiled the step in 12 s"
    assert lines[1] == "update skipped: a loss is not finite"[:columns].rstrip()
    assert lines[-1] == "done"
    assert "UserWarning: deprecated" in "".join(lines)
    assert not any("|" in line or "left" in line for line in lines)  # the bar leaves no trace


class Clock:
    """Time that passes only when it is told to."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(progress.time, "monotonic", clock)
    return clock


def test_without_a_terminal_a_line_comes_every_half_minute(clock, caplog):
    caplog.set_level(logging.INFO)
    with Progress(100, "epoch 3/9", "batches", done=10) as work:
        for _ in range(90):
            clock.now += 4
            work.update("box 0.5")
    lines = [record.getMessage() for record in caplog.records]
    # After 32 s eight batches are done, and 82 are left.
    assert lines[0] == "epoch 3/9: 18 of 100 batches, 5:28 left, box 0.5"
    assert len(lines) == 90 * 4 // 32
    assert all(word not in lines[-1] for word in ("100 of 100", " 0:00 left"))


def test_only_the_first_rank_shows_progress(clock, caplog, monkeypatch):
    caplog.set_level(logging.INFO)
    for name, value in (("RANK", "1"), ("LOCAL_RANK", "1"), ("WORLD_SIZE", "2")):
        monkeypatch.setenv(name, value)
    with Progress(9, "validating", "batches") as work:
        clock.now += 99
        work.update()
    assert caplog.records == []


def test_another_ranks_line_stands_alone_too():
    code = """
import logging, sys
from utils.screen.progress import begin_lines
begin_lines("rank 1: ", logging.WARNING)
sys.stderr.write("epoch 1/3 |####  | 4/9")  # as rank 0 has drawn it
sys.stderr.flush()
logging.getLogger("train").warning("a label is wrong")
logging.getLogger("train").info("not shown")
"""
    assert run_on_terminal(code, 80).shown() == ["rank 1: a label is wrong"]


PARTS = ["epoch 100/300", "box 0.1234", "obj 0.2345", "cls 0.0456", "P 0.100", "R 0.200",
         "mAP50 0.667", "mAP50-95 0.385", "14.7 s", "waited 12 %"]  # fmt: skip
JOIN = f"from utils.screen.progress import joined\nprint(joined({PARTS}))"


@pytest.mark.parametrize(("columns", "lines"), [(200, 1), (80, 2), (40, 4)])
def test_an_epochs_line_is_broken_between_its_parts_where_it_must(columns, lines):
    shown = run_on_terminal(JOIN, columns).shown()
    assert len(shown) == lines and max(map(len, shown)) <= columns
    assert [part for line in shown for part in line.strip().split("  ")] == PARTS
    assert all(line.startswith("  ") for line in shown[1:])
