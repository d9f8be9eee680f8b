"""A job on two machines: it works together, and when the link is cut it ends and can resume."""

import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from duet import backend
from tests.distributed.conftest import SCRIPT, TRAIN_FLAGS, Processes
from tests.distributed.network_namespaces import Machine, reason_against, two_machines
from tests.train.short_runs import assert_equal_runs

TIMEOUT = 12  # seconds without progress before the job ends itself
# From the cut to the last launcher's end: the timeout, then the launchers look and clean up.
END_SECONDS = TIMEOUT + 30
LAUNCHERS = {"torch": "torch.distributed.run", "oneflow": "oneflow.distributed.launch"}
PORT = 29500  # each pair of machines has all ports to itself


@pytest.fixture(autouse=True)
def _needs_two_machines():
    """Skip where namespaces cannot be made; fail instead where REQUIRE_NETNS=1."""
    reason = reason_against()
    if reason and os.environ.get("REQUIRE_NETNS") == "1":
        pytest.fail(reason)
    if reason:
        pytest.skip(reason)


def start_on(
    machines: Sequence[Machine], folder: Path, environment: Mapping[str, str], *script: object
) -> list[Processes]:
    """Start a launcher on each machine, as in docs/en/multi-node.md; one rank a machine."""
    started = []
    for number, machine in enumerate(machines):
        launcher = ["-m", LAUNCHERS[backend.use()], "--nnodes", len(machines)]
        launcher += ["--node_rank", number, "--nproc_per_node", 1]
        launcher += ["--master_addr", machines[0].address, "--master_port", PORT]
        # gloo asks for the host's name, which no namespace can look up.
        own = {**environment, "GLOO_SOCKET_IFNAME": machine.interface}
        command = machine.command(sys.executable, *launcher, *script)
        started.append(Processes(folder, command, own))
    return started


def end_of(jobs: Sequence[Processes]) -> tuple[list[int], str]:
    """Return the launchers' exit codes, and what they print."""
    codes, texts = zip(*(job.end() for job in jobs), strict=True)
    return list(codes), "\n".join(texts)


def test_cut_link_ends_the_job_and_it_resumes_exactly(runs, whole):
    """It ends as a run of two ranks on one machine does."""
    job = [SCRIPT, *TRAIN_FLAGS, *runs.flags, "--name", "on-two-machines"]
    with two_machines() as machines:
        pause = runs.environment("pause", rank=1, phase="training", step=8)
        jobs = start_on(machines, runs.folder, pause, *job, "--timeout", TIMEOUT)
        jobs[0].wait_for(runs.temporary / "pausing")
        machines[1].set_link("down")
        cut = time.monotonic()
        codes, printed = end_of(jobs)
        assert codes == [1, 1] and time.monotonic() - cut < END_SECONDS, printed
        still = rf"rank [01] \(.+\): no progress for 1[2-9] s in .+ \(--timeout {TIMEOUT}\)"
        assert re.search(still, printed), printed
        assert [machine.processes() for machine in machines] == [[], []]
        machines[1].set_link("up")
        codes, printed = end_of(start_on(machines, runs.folder, runs.environment(), *job))
        assert codes == [0, 0], printed
        assert "resumed after 6 batches" in printed
    assert_equal_runs(runs.folder / "on-two-machines", whole.folder)
