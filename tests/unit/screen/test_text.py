"""Text on a screen: printable characters, single lines, progress bars, and --view-img's window."""

import io
import logging
import os
import sys

import cv2
import numpy as np
import pytest

from duet.utils import progress
from duet.utils.detect.pipeline.report import SCREENS, require_window, show_in_window
from duet.utils.errors import UserError
from duet.utils.progress import LineHandler, Progress, held_back
from duet.utils.text import as_message, csv_cell, printable, say

# Codes that clear the screen, name colours and ring; ends of lines; marks that turn the direction
# of writing; a byte that is no UTF-8; half a character.
HOSTILE = "a\x1b[2J\r\nerror: b\x85\u2028\x9b31m\x07\t\u202ec\u2066\udce9\ud800"
SPELT_OUT = r"a\x1b[2J\r\nerror: b\x85\u2028\x9b31m\x07\t\u202ec\u2066\xe9\ud800"


def test_invisible_characters_are_escaped():
    assert printable(HOSTILE) == SPELT_OUT
    assert printable("Kuh ü 牛 🐄") == "Kuh ü 牛 🐄"
    assert printable(os.fsdecode(b"caf\xe9.jpg")) == r"caf\xe9.jpg"
    assert all(printable(chr(code)).isprintable() for code in range(0x3000))


@pytest.mark.parametrize("sign", "=+-@＝＋－＠")
def test_spreadsheet_formulas_are_quoted(sign):
    assert csv_cell(f"{sign}cmd|calc") == f"'{sign}cmd|calc"
    assert csv_cell(f"\t{sign}1") == f"\\t{sign}1" and csv_cell(f"a{sign}b") == f"a{sign}b"


def test_continuation_lines_cannot_pass_as_our_messages():
    assert as_message("a:\nb\n  c\n\n") == "a:\n  b\n  c\n\n"
    shown = as_message(f"{HOSTILE}: left out")
    assert shown.splitlines()[1].startswith("  error: b")
    assert all(line.isprintable() for line in shown.split("\n"))


def test_each_text_is_printed_as_one_line(capsys):
    say(HOSTILE, "b")
    say(HOSTILE, file=sys.stderr)
    assert capsys.readouterr() == (f"{SPELT_OUT}\nb\n", f"{SPELT_OUT}\n")


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "utf-8"])
def test_log_line_fits_any_encoding(monkeypatch, encoding):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding=encoding))
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # without pytest's own
    progress.begin_lines("rank 1: ", logging.INFO)
    logging.getLogger("data").warning("%s: left out", HOSTILE)
    say("牛 " + HOSTILE)
    sys.stdout.flush()
    logging.captureWarnings(False)
    logging.getLogger().setLevel(logging.WARNING)  # as it is without a command
    text = written.getvalue().decode(encoding)
    cow = "牛" if encoding == "utf-8" else r"\u725b"
    parts = SPELT_OUT.split(r"\n")
    assert text == f"rank 1: {parts[0]}\n  {parts[1]}: left out\n{cow} {SPELT_OUT}\n"


class Terminal(io.StringIO):
    """What is written to a terminal."""

    def isatty(self):
        return True


def test_log_line_replaces_the_bar_which_is_redrawn(monkeypatch):
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


def test_progress_logs_every_half_minute_without_a_terminal(clock, caplog):
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


def test_headless_opencv_is_refused_with_the_next_step(monkeypatch):
    monkeypatch.setattr(cv2, "currentUIFramework", lambda: "")
    with pytest.raises(UserError, match="--view-img: OpenCV .* headless build, .*; leave it out"):
        require_window("--view-img")


def test_machine_without_a_display_is_refused(monkeypatch):
    monkeypatch.setattr(cv2, "currentUIFramework", lambda: "QT5")
    for name in SCREENS:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UserError, match="no display: DISPLAY and WAYLAND_DISPLAY are unset"):
        require_window("--view-img")
    monkeypatch.setenv("DISPLAY", ":0")
    require_window("--view-img")


@pytest.mark.parametrize(
    ("key", "ends"), [(-1, False), (ord("x"), False), (ord("q"), True), (27, True)]
)
def test_window_shows_the_image_and_listens_for_q(monkeypatch, key, ends):
    shown = []
    monkeypatch.setattr(cv2, "imshow", lambda title, image: shown.append((title, image)))
    monkeypatch.setattr(cv2, "waitKey", lambda milliseconds: key)
    red = np.zeros((2, 2, 3), np.uint8) + np.uint8([255, 0, 0])
    assert show_in_window(red) is ends
    ((title, image),) = shown
    assert title == "detect.py" and image[0, 0].tolist() == [0, 0, 255]


def test_held_back_records_are_emitted_after_a_failure(caplog):
    log = logging.getLogger("held")
    caplog.set_level(logging.INFO)
    with held_back(log) as notes:
        log.info("a note")
    log.info("the summary")
    for note in notes:
        log.handle(note)
    assert caplog.messages == ["the summary", "a note"] and log.propagate and not log.handlers
    with pytest.raises(ValueError), held_back(log):
        log.info("why")
        raise ValueError
    assert caplog.messages[2:] == ["why"] and log.propagate and not log.handlers
