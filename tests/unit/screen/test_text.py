"""What of a text from outside reaches a person: characters that show, on one line."""

import io
import logging
import os
import sys

import pytest

from duet.utils import progress
from duet.utils.text import as_message, csv_cell, printable, say

# Codes that clear the screen, name colours and ring; ends of lines; marks that turn the direction
# of writing; a byte that is no UTF-8; half a character.
HOSTILE = "a\x1b[2J\r\nerror: b\x85\u2028\x9b31m\x07\t\u202ec\u2066\udce9\ud800"
SPELT_OUT = r"a\x1b[2J\r\nerror: b\x85\u2028\x9b31m\x07\t\u202ec\u2066\xe9\ud800"


def test_what_does_not_show_is_spelt_out():
    assert printable(HOSTILE) == SPELT_OUT
    assert printable("Kuh ü 牛 🐄") == "Kuh ü 牛 🐄"
    assert printable(os.fsdecode(b"caf\xe9.jpg")) == r"caf\xe9.jpg"
    assert all(printable(chr(code)).isprintable() for code in range(0x3000))


@pytest.mark.parametrize("sign", "=+-@＝＋－＠")
def test_a_spreadsheet_computes_no_cell(sign):
    assert csv_cell(f"{sign}cmd|calc") == f"'{sign}cmd|calc"
    assert csv_cell(f"\t{sign}1") == f"\\t{sign}1" and csv_cell(f"a{sign}b") == f"a{sign}b"


def test_a_message_has_its_lines_but_none_that_begins_as_ours_do():
    assert as_message("a:\nb\n  c\n\n") == "a:\n  b\n  c\n\n"
    shown = as_message(f"{HOSTILE}: left out")
    assert shown.splitlines()[1].startswith("  error: b")
    assert all(line.isprintable() for line in shown.split("\n"))


def test_each_line_is_printed_as_one(capsys):
    say(HOSTILE, "b")
    say(HOSTILE, file=sys.stderr)
    assert capsys.readouterr() == (f"{SPELT_OUT}\nb\n", f"{SPELT_OUT}\n")


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "utf-8"])
def test_no_encoding_is_too_small_for_a_log_line(monkeypatch, encoding):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding=encoding))
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # without pytest's own
    monkeypatch.setattr(logging.getLogger(), "level", logging.WARNING)
    progress.begin_lines("rank 1: ", logging.INFO)
    logging.getLogger("data").warning("%s: left out", HOSTILE)
    say("牛 " + HOSTILE)
    sys.stdout.flush()
    logging.captureWarnings(False)
    text = written.getvalue().decode(encoding)
    cow = "牛" if encoding == "utf-8" else r"\u725b"
    parts = SPELT_OUT.split(r"\n")
    assert text == f"rank 1: {parts[0]}\n  {parts[1]}: left out\n{cow} {SPELT_OUT}\n"
