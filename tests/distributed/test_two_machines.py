"""A job on two machines: it works together, and when the link is cut it ends and can resume."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from duet import backend
from duet.utils.project import PROJECT
from duet.utils.weights.checkpoint import load_checkpoint
from tests.distributed.network_namespaces import Machine, reason_against, two_machines
from tests.small import write_small_dataset, write_small_model

START_SECONDS = 120.0  # a limit, not an expectation: OneFlow takes 12 s on a quiet machine
TIMEOUT = 12  # seconds without progress before the job ends itself
# From the cut to the last launcher's end: the timeout, then the launchers look and clean up.
END_SECONDS = TIMEOUT + 30
EPOCHS = 6
LAUNCHERS = {"torch": "torch.distributed.run", "oneflow": "oneflow.distributed.launch"}
PORT = 29500  # each pair of machines has all ports to itself
POLL_SECONDS = 0.05


@pytest.fixture(autouse=True)
def _needs_two_machines():
    """Skip where namespaces cannot be made; fail instead where REQUIRE_NETNS=1."""
    reason = reason_against()
    if reason and os.environ.get("REQUIRE_NETNS") == "1":
        pytest.fail(reason)
    if reason:
        pytest.skip(reason)


class Job:
    """A launcher on each machine; one rank a machine. Leaves no process behind."""

    def __init__(self, machines: Sequence[Machine], folder: Path, *arguments: object) -> None:
        """Start `arguments`, a script and its flags; output goes to files in the folder."""
        folder.mkdir(parents=True, exist_ok=True)
        self.logs = [folder / f"machine{number}.log" for number in range(len(machines))]
        self._processes: list[subprocess.Popen[bytes]] = []
        for number, machine in enumerate(machines):
            with self.logs[number].open("wb") as log:
                process = subprocess.Popen(
                    launch_command(machines, number, arguments),
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=PROJECT,
                    # gloo asks for the host's name, which no namespace can look up.
                    env={**os.environ, "GLOO_SOCKET_IFNAME": machine.interface},
                )
            self._processes.append(process)

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *exception: object):
        for process in self._processes:
            process.kill()  # its ranks end with the namespace
            process.wait()

    def output(self) -> str:
        """Return what all machines printed so far."""
        return "\n".join(log.read_text(errors="replace") for log in self.logs)

    def exit_codes(self, seconds: float) -> list[int | None]:
        """Return the launchers' exit codes; None for one that still runs after so many seconds."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and None in [p.poll() for p in self._processes]:
            time.sleep(POLL_SECONDS)
        return [process.poll() for process in self._processes]

    def wait_for(self, path: Path, seconds: float) -> None:
        """Wait until a file is there; fail with all output if the job ends or stalls before."""
        deadline = time.monotonic() + seconds
        while not path.exists():
            ended = [process.poll() for process in self._processes]
            assert time.monotonic() < deadline and None in ended, f"{ended}\n{self.output()}"
            time.sleep(POLL_SECONDS)


def launch_command(
    machines: Sequence[Machine], number: int, arguments: Sequence[object]
) -> list[str]:
    """Return one machine's command line, as in docs/en/multi-node.md."""
    launcher = ["-m", LAUNCHERS[backend.use()], "--nnodes", len(machines), "--node_rank", number]
    launcher += ["--nproc_per_node", 1, "--master_addr", machines[0].address]
    launcher += ["--master_port", PORT]
    return machines[number].command(sys.executable, *launcher, *arguments)


def test_a_cut_link_ends_the_job_in_time_and_it_resumes_exactly(
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
