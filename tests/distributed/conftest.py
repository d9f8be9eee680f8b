"""Two ranks, started once for all tests that look at what they did."""

import json
from pathlib import Path
from typing import NamedTuple

import pytest

from duet.utils.processes.exit_status import EXIT_DONE
from tests.distributed.jobs import SCRIPT, Listener, Processes, run_ranks, start_training, watch
from tests.distributed.training_worker import CASES, write_inputs
from tests.small import write_small_dataset, write_tiny_model

EPOCHS = 3  # of six batches, and two of each validation


class Runs:
    """Trainings of one dataset in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        data, cfg = write_small_dataset(folder), write_tiny_model(folder)
        self.flags = ["--data", data, "--cfg", cfg, "--epochs", EPOCHS, "--noplots", "--exist-ok"]
        self.flags += ["--sync-bn", "--project", folder, "--resume", "auto"]
        self.temporary = folder / "temporary"
        self.temporary.mkdir()

    def start(self, name, *flags, how=None, rank=0, phase="", step=0, **options) -> Processes:
        environment = self.environment(how, rank, phase, step)
        run = [*self.flags, "--name", name, *flags]
        return start_training(self.folder, *run, script=SCRIPT, environment=environment, **options)

    def environment(self, how=None, rank=0, phase="", step=0) -> dict[str, str]:
        """Return the variables that tell the script what goes wrong."""
        fault = {"how": how, "rank": rank, "phase": phase, "step": step}
        return {"TMPDIR": str(self.temporary), "FAULT": json.dumps(fault)}

    def end(self, *arguments, **options) -> tuple[int, str]:
        """Return exit code and output of a training, which must leave only its folder."""
        code, text = self.start(*arguments, **options).end()
        assert not list(self.temporary.glob("duet*"))
        return code, text

    def states(self, name: str) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in (self.folder / name).glob("weights/[!.]*")}


class Whole(NamedTuple):
    """A run of two ranks that nothing interrupts."""

    folder: Path
    printed: str
    listeners: set[Listener]  # that its processes had


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="session")
def whole(runs: Runs) -> Whole:
    job = runs.start("whole")
    seen = watch(job.processes, lambda: job.process.poll() is not None)
    code, text = job.end()
    assert code == EXIT_DONE, text
    return Whole(runs.folder / "whole", text, seen)


@pytest.fixture(scope="session")
def learnt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with what two ranks learn, and print, and what their checks find."""
    folder = tmp_path_factory.mktemp("ranks")
    write_inputs(folder)
    done = run_ranks(2, "-m", "tests.distributed.training_worker", str(folder), "cpu", *CASES)
    assert done.returncode == 0, done.stderr
    (folder / "printed.txt").write_text(done.stdout)
    return folder
