"""What compare.py prints while it runs and at its end; in colour only on a terminal.

Before: `compare.py`, run by run; at the end the sections of `report.py`.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from utils.comparison.load import load_average
from utils.comparison.measured import Document
from utils.comparison.plan import Turn
from utils.comparison.report import Report
from utils.comparison.report_markdown import sections
from utils.comparison.statistics import counted_epochs, spread
from utils.comparison.words import number
from utils.screen.state_line import CLEAR_LINE, LINE_SECONDS
from utils.screen.text import printable
from utils.screen.words import clock

RED, PLAIN = "\033[31m", "\033[0m"


class Terminal:
    """Lines for a reader."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_terminal = stream.isatty()
        self._coloured = self._is_terminal and "NO_COLOR" not in os.environ
        self._running, self._start, self._told = "", 0.0, 0.0

    def begin(self, head: Sequence[str], folder: Path) -> None:
        for line in (*head, f"Load {load_average()}; results in {folder}"):
            self._line(line)
        self._line(
            f"{'run':<42}{'s/epoch':>9}{'min':>8}{'max':>8}{'process s':>11}{'host MiB':>10}"
        )

    def starting(self, turn: Turn, position: int, total: int) -> None:
        """Print that a run has started."""
        self._running = f"{turn.name} ({position} of {total})"
        self._start = self._told = time.monotonic()
        if self._is_terminal:
            self._say_running()

    def going_on(self) -> None:
        """Print from time to time how long the run has taken; on a terminal the result replaces it.

        Call it again and again.
        """
        if time.monotonic() >= self._told + (1 if self._is_terminal else LINE_SECONDS):
            self._told = time.monotonic()
            self._say_running()

    def _say_running(self) -> None:
        text = f"{self._running}: {clock(time.monotonic() - self._start)} ..."
        if self._is_terminal:
            width = shutil.get_terminal_size().columns
            self._stream.write(CLEAR_LINE + printable(text)[: width - 1])
            self._stream.flush()
        else:
            self._line(text)

    def finished(self, turn: Turn, run: Document, kept: bool) -> None:
        if self._is_terminal and not kept:
            self._stream.write(CLEAR_LINE)
        if run["failure"]:
            self._line(f"{turn.name:<42}  {run['failure']}", RED)
            for line in run["log_tail"]:
                if not run["failure"].endswith(f": {line}"):
                    self._line(f"    {line}")
            return
        seconds = spread([epoch["seconds"] for epoch in counted_epochs(run)])
        figures = (seconds.median, seconds.min, seconds.max) if seconds else (None,) * 3
        median, low, high = map(number, figures)
        self._line(
            f"{turn.name:<42}{median:>9}{low:>8}{high:>8}{number(run['process_seconds']):>11}"
            f"{number(run['peak_host_mib'], 1):>10}{'  (kept)' if kept else ''}"
        )

    def conclude(self, report: Report, folder: Path) -> None:
        """Print what was found, warnings, figures, and where the other reports are."""
        for sentence in report.summary:
            self._line(sentence)
        for warning in report.warnings:
            self._line(warning, RED)
        figures = [part for part in report.sections if part.findings or part.table.rows]
        for line in ("", *sections(figures)):
            self._line(line)
        self._line(
            f"{folder / 'compare.html'} is the page; compare.md and compare.json are in its folder"
        )

    def interrupted(self, folder: Path) -> None:
        command = shlex.join([sys.executable, sys.argv[0], "--resume", str(folder)])
        self._line(f"interrupted; what was measured is kept: continue with {command}")

    def refused(self, reason: str) -> None:
        for line in f"error: {reason}".split("\n"):
            self._line(line, RED)

    def _line(self, text: str, colour: str = "") -> None:
        text = printable(text)
        if colour and self._coloured:
            text = f"{colour}{text}{PLAIN}"
        print(text, file=self._stream, flush=True)
