"""A job on two machines: it works together, and when the link is cut it ends and can resume."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.distributed.machines import Job, require_two_machines
from tests.distributed.network_namespaces import two_machines
from tests.small import write_small_dataset, write_small_model
from utils.state.checkpoint import load_checkpoint

START_SECONDS = 120.0  # a limit, not an expectation: OneFlow takes 12 s on a quiet machine
TIMEOUT = 12  # seconds without progress before the job ends itself
# From the cut to the last launcher's end: the timeout, then the launchers look and clean up.
END_SECONDS = TIMEOUT + 30
EPOCHS = 6


@pytest.fixture(autouse=True)
def _needs_two_machines():
    require_two_machines()


def test_training_ends_within_its_timeout_when_the_link_is_cut_and_resumes_as_if_it_never_was(
    tmp_path,
):
    flags = training_flags(tmp_path)
    whole, cut = (["train.py", *flags, "--project", tmp_path / name] for name in ("whole", "cut"))
    cut += ["--resume", "auto"]
    with two_machines() as machines, two_machines() as others:
        # The others only have to end well, however slow this machine is: they may take their time.
        with Job(machines, tmp_path / "cut-logs", *cut, "--timeout", TIMEOUT) as job:
            job.wait_for(tmp_path / "cut" / "run" / "weights" / "last.safetensors", START_SECONDS)
            machines[1].set_link("down")
            reference = Job(others, tmp_path / "whole-logs", *whole)  # while the other one waits
            assert job.exit_codes(END_SECONDS) == [1, 1], job.output()
            still = rf"rank [01] \(.+\): no progress for 1[2-9] s in .+ \(--timeout {TIMEOUT}\)"
            assert re.search(still, job.output()), job.output()
            assert [machine.processes() for machine in machines] == [[], []]
        machines[1].set_link("up")
        with reference, Job(machines, tmp_path / "resumed-logs", *cut) as job:
            assert job.exit_codes(START_SECONDS) == [0, 0], job.output()
            assert "resumed after" in job.output()
            assert reference.exit_codes(START_SECONDS) == [0, 0], reference.output()
    assert_equal_weights(tmp_path / "cut", tmp_path / "whole")


def training_flags(folder: Path) -> list[object]:
    """Return the flags of a small training; the link is cut in the middle of it."""
    flags = ["--data", write_small_dataset(folder), "--cfg", write_small_model(folder)]
    flags += ["--weights", "", "--img", 64, "--batch", 4, "--epochs", EPOCHS, "--workers", 0]
    return [*flags, "--device", "cpu", "--name", "run", "--noplots"]


def assert_equal_weights(one: Path, other: Path) -> None:
    """Compare weights bit for bit: on a CPU nothing in a run depends on time."""
    found, wanted = (
        load_checkpoint(project / "run" / "weights" / "last.safetensors")
        for project in (one, other)
    )
    assert found.header.epoch == wanted.header.epoch == EPOCHS
    for section in ("model", "ema", "optimizer"):
        arrays = getattr(found, section)
        for name, array in getattr(wanted, section).items():
            np.testing.assert_array_equal(arrays[name], array, err_msg=f"{section}/{name}")
