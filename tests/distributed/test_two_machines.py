"""A job on two machines: it works together, and when the link is cut it ends and can resume."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from duet import backend
from duet.utils.project import PROJECT
from tests.distributed.jobs import SCRIPT, TRAIN_FLAGS
from tests.distributed.network_namespaces import Machine, reason_against, two_machines
from tests.train.short_runs import assert_equal_runs

START_SECONDS = 120.0  # a limit, not an expectation: OneFlow takes 12 s on a quiet machine
TIMEOUT = 12  # seconds without progress before the job ends itself
# From the cut to the last launcher's end: the timeout, then the launchers look and clean up.
END_SECONDS = TIMEOUT + 30
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

    def __init__(
        self,
        machines: Sequence[Machine],
        folder: Path,
        environment: Mapping[str, str],
        *arguments: object,
    ) -> None:
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
                    env={
                        **os.environ,
                        **environment,
                        "PYTHONPATH": str(PROJECT),
                        "GLOO_SOCKET_IFNAME": machine.interface,
                    },
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


def test_a_cut_link_ends_the_job_in_time_and_it_resumes_exactly(runs, whole):
    """It ends as a run of two ranks on one machine does."""
    job = [SCRIPT, *TRAIN_FLAGS, *runs.flags, "--name", "on-two-machines"]
    pausing = runs.temporary / "pausing"
    with two_machines() as machines:
        pause = runs.environment("pause", rank=1, phase="training", step=8)
        with Job(machines, runs.folder / "cut-logs", pause, *job, "--timeout", TIMEOUT) as started:
            started.wait_for(pausing, START_SECONDS)
            machines[1].set_link("down")
            assert started.exit_codes(END_SECONDS) == [1, 1], started.output()
            still = rf"rank [01] \(.+\): no progress for 1[2-9] s in .+ \(--timeout {TIMEOUT}\)"
            assert re.search(still, started.output()), started.output()
            assert [machine.processes() for machine in machines] == [[], []]
        pausing.unlink()
        machines[1].set_link("up")
        with Job(machines, runs.folder / "resumed-logs", runs.environment(), *job) as resumed:
            assert resumed.exit_codes(START_SECONDS) == [0, 0], resumed.output()
            assert "resumed after 6 batches" in resumed.output()
    assert_equal_runs(runs.folder / "on-two-machines", whole.folder)
