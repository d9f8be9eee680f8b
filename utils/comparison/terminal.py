"""What compare.py prints while it runs and at its end; coloured on a terminal only.

Before: `compare.py`, run by run.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TextIO

from utils.comparison.document import cells_of, warnings
from utils.comparison.machine import load
from utils.comparison.measured import Document
from utils.comparison.plan import Turn
from utils.comparison.settings import Settings
from utils.comparison.statistics import counted_epochs, spread
from utils.comparison.tables import (
    Table,
    number,
    outcomes,
    pair_losses,
    pair_means,
    processes_of_a_run,
    sentence,
    split,
    times,
)

RED, BOLD, PLAIN = "\033[31m", "\033[1m", "\033[0m"
CLEAR_LINE = "\r\033[K"


class Terminal:
    """Lines for a reader."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_terminal = stream.isatty()
        self._coloured = self._is_terminal and "NO_COLOR" not in os.environ

    def begin(self, settings: Settings, folder: Path, machine: Document) -> None:
        cells = len(cells_of(settings))
        self._line(f"{machine['processor']}, {machine['cores']} cores, load {load()}")
        self._line(
            f"{cells} cells, {settings.rounds} rounds, {settings.epochs} epochs each after "
            f"{settings.warm_up_epochs} of warm-up{processes_of_a_run(settings.nproc)}; "
            f"results in {folder}"
        )
        self._line(
            f"{'run':<42}{'s/epoch':>9}{'min':>8}{'max':>8}{'process s':>11}{'host MiB':>10}"
        )

    def starting(self, turn: Turn, position: int, total: int) -> None:
        """A line that the result replaces, on a terminal."""
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

    def conclude(self, document: Document, folder: Path) -> None:
        for warning in warnings(document):
            self._line(warning, RED)
        for title, table in (
            ("Seconds per epoch", times(document)),
            ("Where they went, seconds", split(document)),
            ("What training reached", outcomes(document)),
        ):
            if table.rows:
                self._line(f"\n{title}", BOLD)
                self._table(table)
        self._line("\nPair by pair", BOLD)
        for pair in document["pairs"]:
            self._line(sentence(pair), RED if pair["unequal"] else "")
            if losses := pair_losses(pair):
                self._line(f"    {losses}", RED if pair["losses"]["diverged"] else "")
            if means := pair_means(pair):
                self._line(f"    {means}")
        self._line(f"\n{folder / 'compare.html'} is the page; compare.md and .json lie beside it")

    def interrupted(self, folder: Path) -> None:
        command = shlex.join([sys.executable, "compare.py", "--resume", str(folder)])
        self._line(f"interrupted; what was measured is kept: continue with {command}")

    def refused(self, reason: str) -> None:
        self._line(f"error: {reason}", RED)

    def _table(self, table: Table) -> None:
        rows = [table.heading, *table.rows]
        widths = [max(len(row[column]) for row in rows) for column in range(len(table.heading))]
        for row in rows:
            cells = [
                text.ljust(width) if column < 2 else text.rjust(width)
                for column, (text, width) in enumerate(zip(row, widths, strict=True))
            ]
            self._line("  ".join(cells).rstrip())

    def _line(self, text: str, colour: str = "") -> None:
        if colour and self._coloured:
            text = f"{colour}{text}{PLAIN}"
        print(text, file=self._stream, flush=True)
