"""Compare the epoch times of OneFlow and PyTorch in alternating runs of train.py.

Cells run in turn (A B A B), and unequal work is refused; docs/en/compare.md explains the results.
"""

from duet.utils.processes.start import start_command

if __name__ == "__main__":
    start_command()  # before imports that may be slow or missing

import datetime
import shlex
import signal
import sys
from collections import defaultdict
from pathlib import Path

from duet.utils.comparison import document as documents
from duet.utils.comparison.load import describe_machine, require_same_machine
from duet.utils.comparison.report import head, run_lines, write_reports
from duet.utils.comparison.runs import carry_out, load_record, refusal_of
from duet.utils.comparison.settings import PLAIN, Cell, Document, Settings, parse_flags, turns
from duet.utils.errors import UserError
from duet.utils.files.atomic import remove_unfinished
from duet.utils.files.run_folder import RunLock, create_run_folder
from duet.utils.files.yaml_files import find_yaml
from duet.utils.processes.command import run_command
from duet.utils.processes.exit_status import EXIT_FAILED, EXIT_INTERRUPTED
from duet.utils.processes.start import program_words
from duet.utils.system.machine import load_average
from duet.utils.text import say


def main() -> None:
    settings, before, folder = parse_flags()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends the run in progress too
    if before is None:
        if settings.data != "shapes" and not find_yaml(settings.data, "data").exists():
            raise UserError(f"--data {settings.data}: no such dataset YAML or folder")
        folder = create_run_folder(folder.parent, folder.name, exist_ok=False)
    with RunLock() as lock:
        lock.take(folder)
        remove_unfinished(folder)
        sys.exit(Comparison(settings, folder, before).run())


class Comparison:
    def __init__(self, settings: Settings, folder: Path, before: Document | None) -> None:
        self.settings, self.folder = settings, folder
        self.machine = describe_machine()
        self.created = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
        self.records: dict[Cell, list[Document]] = defaultdict(list)
        if before is not None:
            require_same_machine(before["machine"], self.machine, folder)
            self.created = before["created"]

    def run(self) -> int:
        """Carry out all runs and report; return the exit code."""
        write_reports(self.document("running"), self.folder)
        say(*head(self.document("running")))
        say(f"Load {load_average()}; results in {self.folder}")
        try:
            self.take_turns()
        except KeyboardInterrupt:
            self.conclude("interrupted")
            resume = shlex.join([sys.executable, *program_words(), "--resume", str(self.folder)])
            say(f"interrupted; completed runs are kept; continue with {resume}")
            return EXIT_INTERRUPTED
        except documents.UnequalWorkError:
            self.conclude("refused")
            raise
        self.conclude("complete")
        failed = any(run["failure"] for runs in self.records.values() for run in runs)
        return EXIT_FAILED if failed else 0

    def take_turns(self) -> None:
        """Run every cell once per round, skipping cells that have failed."""
        planned = list(turns(self.settings.cells, self.settings.rounds))
        for number, turn in enumerate(planned, start=1):
            runs = self.records[turn.cell]
            if any(run["failure"] for run in runs):
                continue
            kept = load_record(self.folder, turn)
            say(f"{turn.name} ({number} of {len(planned)}) ...")
            sys.stdout.flush()  # it may be a pipe, and a run takes minutes
            runs.append(kept or carry_out(self.settings, turn, self.folder))
            if number == 1 and turn.cell.variant == PLAIN and (reason := refusal_of(runs[-1])):
                raise UserError(reason)  # all other runs use the same flags
            say(*run_lines(runs[-1], kept is not None))
            write_reports(self.document("running"), self.folder)
            documents.require_equal_work(turn.cell, self.records, self.settings)

    def document(self, status: str) -> Document:
        about = self.machine, status, self.created
        return documents.build_document(self.settings, self.records, *about)

    def conclude(self, status: str) -> None:
        report = write_reports(self.document(status), self.folder)
        say(*report.warnings, *(x for part in report.sections for x in part.items))
        say(f"report: {self.folder / 'compare.html'}, and as text compare.md")


if __name__ == "__main__":
    run_command(main)
