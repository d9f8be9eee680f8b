"""Compare the epoch times of OneFlow and PyTorch: flags -> plan -> runs of train.py -> report.

Reads as: settings -> cells in turn, A B A B -> a record of each run -> equal work or refusal ->
compare.json, compare.md, compare.html. docs/en/compare.md explains every figure.
"""

from __future__ import annotations

from utils.processes.start import start_command

if __name__ == "__main__":
    start_command()  # before what may be slow to import, or missing

import datetime
import signal
import sys
from collections import defaultdict
from pathlib import Path

from utils.comparison.document import (
    UnequalWorkError,
    build_document,
    cells_of,
    require_equal_work,
)
from utils.comparison.execution import carry_out, load_record
from utils.comparison.machine import describe_machine, require_same_machine
from utils.comparison.measured import Document
from utils.comparison.plan import Cell, turns
from utils.comparison.report import head
from utils.comparison.report_files import read_document, write_reports
from utils.comparison.settings import Settings, parse_flags
from utils.comparison.terminal import Terminal
from utils.files.atomic import remove_unfinished
from utils.processes.command import run_command
from utils.processes.exit_status import EXIT_FAILED, EXIT_INTERRUPTED
from utils.processes.start import EXIT_USER_ERROR
from utils.state.folder import create_run_folder
from utils.state.lock import RunLock


def main() -> None:
    settings, resumed, wanted = parse_flags()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends the run in progress too
    folder = resumed or create_run_folder(wanted.parent, wanted.name, exist_ok=False)
    with RunLock() as lock:
        lock.take(folder)
        remove_unfinished(folder)
        comparison = Comparison(settings, folder)
        settings.save(folder)
        sys.exit(comparison.run(Terminal(sys.stdout)))


class Comparison:
    """The runs so far, and the reports written after each run."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self.settings, self.folder = settings, folder
        self.machine = describe_machine()
        self.created = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
        self.records: dict[Cell, list[Document]] = defaultdict(list)
        if before := read_document(folder):
            require_same_machine(before["machine"], self.machine, folder)
            self.created = before["created"]

    def run(self, terminal: Terminal) -> int:
        """Carry out all runs and report; return the exit code."""
        terminal.begin(head(self.document("running")), self.folder)
        try:
            self.take_turns(terminal)
        except KeyboardInterrupt:
            self.conclude("interrupted", terminal)
            terminal.interrupted(self.folder)
            return EXIT_INTERRUPTED
        except UnequalWorkError as error:
            self.conclude("refused", terminal)
            terminal.refused(str(error))
            return EXIT_USER_ERROR
        self.conclude("complete", terminal)
        failed = any(run["failure"] for runs in self.records.values() for run in runs)
        return EXIT_FAILED if failed else 0

    def take_turns(self, terminal: Terminal) -> None:
        """Run every cell once per round; a cell that failed is not run again."""
        planned = list(turns(cells_of(self.settings), self.settings.rounds))
        for number, turn in enumerate(planned, start=1):
            runs = self.records[turn.cell]
            if any(run["failure"] for run in runs):
                continue
            kept = load_record(self.folder, turn)
            if kept is None:
                terminal.starting(turn, number, len(planned))
            run = kept or carry_out(self.settings, turn, self.folder, terminal.going_on)
            runs.append(run)
            terminal.finished(turn, run, kept is not None)
            write_reports(self.document("running"), self.folder)
            require_equal_work(turn.cell, self.records, self.settings)

    def document(self, status: str) -> Document:
        return build_document(self.settings, self.records, self.machine, status, self.created)

    def conclude(self, status: str, terminal: Terminal) -> None:
        """Write the final reports and print the figures."""
        terminal.conclude(write_reports(self.document(status), self.folder), self.folder)


if __name__ == "__main__":
    run_command(main)
