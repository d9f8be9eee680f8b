"""Compare the epoch times of OneFlow and PyTorch: flags -> runs of train.py -> table and page.

Reads as: settings -> cells in turn, A B A B -> a record of each run -> equal work or refusal ->
compare.json, compare.md, compare.html. docs/compare.md explains every figure.
"""

from __future__ import annotations

import datetime
import json
import signal
import sys
from collections import defaultdict
from pathlib import Path

from utils.comparison.document import build_document, cells_of, unequal_work
from utils.comparison.execution import carry_out, load_record
from utils.comparison.machine import describe_machine
from utils.comparison.measured import Document
from utils.comparison.plan import Cell, make_pairs, turns
from utils.comparison.report_files import write_reports
from utils.comparison.settings import Settings, parse_flags
from utils.comparison.terminal import Terminal
from utils.errors import UserError
from utils.processes.command import run_command
from utils.processes.exit_status import EXIT_INTERRUPTED, EXIT_USER_ERROR
from utils.state.folder import create_run_folder

EXIT_CELL_FAILED = 1


class UnequalWorkError(UserError):
    """Runs that are to be compared did not do the same work; the message lists the differences."""


def main() -> None:
    settings, resumed, wanted = parse_flags()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends the run in progress too
    folder = resumed or create_run_folder(wanted.parent, wanted.name, exist_ok=False)
    machine = describe_machine()
    if resumed is None:
        settings.save(folder)
    else:
        require_same_machine(folder, machine)
    comparison = Comparison(settings, folder, machine, Terminal(sys.stdout))
    comparison.terminal.begin(settings, folder, machine)
    sys.exit(comparison.run())


def require_same_machine(folder: Path, machine: Document) -> None:
    """UserError if what lies in the folder was measured on another machine."""
    path = folder / "compare.json"
    if not path.exists():  # interrupted during the first run
        return
    before = json.loads(path.read_text(encoding="utf-8"))["machine"]
    changed = [name for name in machine if machine[name] != before.get(name)]
    if changed:
        listed = "; ".join(f"{name} was {before.get(name)}, is {machine[name]}" for name in changed)
        raise UserError(f"--resume {folder}: begun on another machine ({listed}); start afresh")


def time_of_start(folder: Path) -> str:
    """When the comparison in the folder was begun: now, unless it is resumed."""
    path = folder / "compare.json"
    if path.exists():
        return str(json.loads(path.read_text(encoding="utf-8"))["created"])
    return datetime.datetime.now().astimezone().isoformat(timespec="seconds")


class Comparison:
    """The runs so far, and what is written about them after each."""

    def __init__(
        self, settings: Settings, folder: Path, machine: Document, terminal: Terminal
    ) -> None:
        self.settings = settings
        self.folder = folder
        self.machine = machine
        self.terminal = terminal
        self.records: dict[Cell, list[Document]] = defaultdict(list)
        self.created = time_of_start(folder)

    def run(self) -> int:
        """Carry out all runs; returns the exit code."""
        try:
            self.take_turns()
        except KeyboardInterrupt:
            self.conclude("interrupted")
            self.terminal.interrupted(self.folder)
            return EXIT_INTERRUPTED
        except UnequalWorkError as error:
            self.conclude("refused")
            self.terminal.refused(str(error))
            return EXIT_USER_ERROR
        document = self.conclude("complete")
        return EXIT_CELL_FAILED if any(cell["failures"] for cell in document["cells"]) else 0

    def take_turns(self) -> None:
        """Every cell once a round; one that failed is not tried again."""
        cells = cells_of(self.settings)
        planned = list(turns(cells, self.settings.rounds))
        for number, turn in enumerate(planned, start=1):
            runs = self.records[turn.cell]
            if any(run["failure"] for run in runs):
                continue
            kept = load_record(self.folder, turn)
            if kept is None:
                self.terminal.starting(turn, number, len(planned))
            run = kept or carry_out(self.settings, turn, self.folder)
            runs.append(run)
            self.terminal.finished(turn, run, kept is not None)
            write_reports(self.document("running"), self.folder)
            self.require_equal_work(turn.cell)

    def require_equal_work(self, cell: Cell) -> None:
        """UnequalWorkError if a pair with this cell is unequal and --allow-unequal is not set."""
        if self.settings.allow_unequal or cell.external:
            return
        pairs = [pair for pair in make_pairs(cells_of(self.settings)) if cell in pair]
        lines = [
            line
            for pair in pairs
            if not pair.candidate.external
            for line in unequal_work(pair, self.records)
        ]
        if lines:
            listed = "".join(f"\n  {line}" for line in dict.fromkeys(lines))
            raise UnequalWorkError(
                f"the work is not equal, so the times are not compared:{listed}\n"
                "make the two sides do the same, or mark every such figure by --allow-unequal"
            )

    def document(self, status: str) -> Document:
        return build_document(self.settings, self.records, self.machine, status, self.created)

    def conclude(self, status: str) -> Document:
        """The final reports, and the tables on screen."""
        document = self.document(status)
        write_reports(document, self.folder)
        self.terminal.conclude(document, self.folder)
        return document


if __name__ == "__main__":
    run_command(main)
