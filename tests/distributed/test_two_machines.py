"""A job on two machines: it works together, and when the link is cut it ends and can resume."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.distributed.machines import Job, require_two_machines
from tests.distributed.network_namespaces import two_machines
from tests.small import write_small_dataset, write_small_model
from utils.checkpoint import load_checkpoint
from utils.config import TrainConfig

WORKER = ("-m", "tests.distributed.collective_worker")
START_SECONDS = 120.0  # a limit, not an expectation: OneFlow takes 12 s on a quiet machine
TIMEOUT = 20
# From the cut to the last launcher's end: the timeout, then the launchers look and clean up.
END_SECONDS = TIMEOUT + 30
EPOCHS = 3


@pytest.fixture(autouse=True)
def _needs_two_machines():
    require_two_machines()


def test_ranks_on_two_machines_sum_and_the_job_ends_when_the_link_is_cut(tmp_path):
    with (
        two_machines() as machines,
        Job(machines, tmp_path, *WORKER, tmp_path, 100_000, TIMEOUT) as job,
    ):
        for rank in range(2):
            job.wait_for(tmp_path / f"rank{rank}-sum7", START_SECONDS)
            assert (tmp_path / f"rank{rank}-sum7").read_text() == "15"  # 0 + 7 and 1 + 7
        machines[0].set_link("down")
        assert job.exit_codes(END_SECONDS) == [1, 1], job.output()
        assert [machine.processes() for machine in machines] == [[], []]


@pytest.mark.skipif(
    "timeout" not in TrainConfig.__dataclass_fields__, reason="train.py has no --timeout"
)
def test_training_ends_within_its_timeout_when_the_link_is_cut_and_resumes_as_if_it_never_was(
    tmp_path,
):
    flags = training_flags(tmp_path)
    with two_machines() as machines:
        reference = [*flags, "--project", tmp_path / "whole"]
        with Job(machines, tmp_path / "whole-logs", "train.py", *reference) as job:
            assert job.exit_codes(START_SECONDS) == [0, 0], job.output()
        broken = [*flags, "--project", tmp_path / "cut", "--resume", "auto"]
        with Job(machines, tmp_path / "cut-logs", "train.py", *broken) as job:
            job.wait_for(tmp_path / "cut" / "run" / "weights" / "last.safetensors", START_SECONDS)
            machines[1].set_link("down")
            assert job.exit_codes(END_SECONDS) == [1, 1], job.output()
            assert re.search(r"rank [01] \(.+\) (says nothing for|is lost)", job.output()), (
                job.output()
            )
            assert [machine.processes() for machine in machines] == [[], []]
        machines[1].set_link("up")
        with Job(machines, tmp_path / "resumed-logs", "train.py", *broken) as job:
            assert job.exit_codes(START_SECONDS) == [0, 0], job.output()
    assert_equal_weights(tmp_path / "cut", tmp_path / "whole")


def training_flags(folder: Path) -> list[object]:
    """A small training, long enough that the link is cut in the middle of it."""
    flags = ["--data", write_small_dataset(folder), "--cfg", write_small_model(folder)]
    flags += ["--weights", "", "--img", 64, "--batch", 4, "--epochs", EPOCHS, "--workers", 0]
    return [*flags, "--device", "cpu", "--name", "run", "--timeout", TIMEOUT]


def assert_equal_weights(one: Path, other: Path) -> None:
    """Bit for bit: on a CPU nothing in a run depends on time."""
    found, wanted = (
        load_checkpoint(project / "run" / "weights" / "last.safetensors")
        for project in (one, other)
    )
    assert found.header.epoch == wanted.header.epoch == EPOCHS
    for section in ("model", "ema", "optimizer"):
        arrays = getattr(found, section)
        for name, array in getattr(wanted, section).items():
            np.testing.assert_array_equal(arrays[name], array, err_msg=f"{section}/{name}")
