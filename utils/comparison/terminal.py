"""What compare.py prints while it runs and at its end; in colour only on a terminal.

Before: `compare.py`, run by run; at the end the sections of `report.py`.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from utils.comparison.load import load_average
from utils.comparison.measured import Document
from utils.comparison.plan import Turn
from utils.comparison.report import Report, number
from utils.comparison.report_markdown import sections
from utils.comparison.statistics import counted_epochs, spread

RED, PLAIN = "\033[31m", "\033[0m"
CLEAR_LINE = "\r\033[K"


class Terminal:
    """Lines for a reader."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_terminal = stream.isatty()
        self._coloured = self._is_terminal and "NO_COLOR" not in os.environ

    def begin(self, head: Sequence[str], folder: Path) -> None:
        for line in (*head, f"Load {load_average()}; results in {folder}"):
            self._line(line)
        self._line(
            f"{'run':<42}{'s/epoch':>9}{'min':>8}{'max':>8}{'process s':>11}{'host MiB':>10}"
        )

    def starting(self, turn: Turn, position: int, total: int) -> None:
        """Write a line that the result will replace, only on a terminal."""
        if self._is_terminal:
            self._stream.write(f"{CLEAR_LINE}{turn.name} ({position} of {total}) ...")
            self._stream.flush()

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
        """Print the warnings, the figures, and where the other reports are."""
        for warning in report.warnings:
            self._line(warning, RED)
        figures = [part for part in report.sections if part.findings or part.table.rows]
        self._line("\n" + "\n".join(sections(figures)))
        self._line(f"{folder / 'compare.html'} is the page; compare.md and .json lie beside it")

    def interrupted(self, folder: Path) -> None:
        command = shlex.join([sys.executable, "compare.py", "--resume", str(folder)])
        self._line(f"interrupted; what was measured is kept: continue with {command}")

    def refused(self, reason: str) -> None:
        self._line(f"error: {reason}", RED)

    def _line(self, text: str, colour: str = "") -> None:
        if colour and self._coloured:
            text = f"{colour}{text}{PLAIN}"
        print(text, file=self._stream, flush=True)
