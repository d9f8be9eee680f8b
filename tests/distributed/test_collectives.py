"""The checks of `tests/conformance/checks_dist.py`, in two processes that work together."""

import json
from pathlib import Path
from typing import Any

import pytest

from duet import backend
from tests.conformance.judging import Check, all_checks
from tests.distributed.conftest import run_ranks

# A rank that adds numbers with the others; in the first attempt, rank 1 is killed while it does.
RESTARTED = """
import os
import signal
import time
from duet import backend
backend.use()
from duet.backend import dist, ops
from duet.backend.processes import this_process
dist.start("cpu", 60)
attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
for step in range(3 if attempt else 1000):
    total = ops.full((1,), 1.0)
    dist.sum_(total)
    assert ops.to_numpy(total).tolist() == [2.0]
    if attempt == 0 and step == 20 and this_process().rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.02)
if this_process().is_main:
    print("done in attempt", attempt, flush=True)
"""
SHARED_CHECKS = [c for c in all_checks() if c.run.__module__ == "tests.conformance.checks_dist"]


@pytest.fixture(scope="module")
def reports(learnt: Path) -> list[dict[str, Any]]:
    return [json.loads((learnt / f"rank{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.parametrize("check", SHARED_CHECKS, ids=lambda check: check.label)
def test_two_ranks_keep_the_promise(check: Check, reports: list[dict[str, Any]]) -> None:
    for report in reports:
        assert report["world_size"] == 2
        assert check.label not in report["failures"], report["failures"][check.label]


@pytest.mark.skipif(backend.use() != "torch", reason="only PyTorch's launcher starts ranks again")
def test_restarted_ranks_do_not_meet_killed_ones(tmp_path: Path) -> None:
    script = tmp_path / "restarted.py"
    script.write_text(RESTARTED)
    done = run_ranks(2, "--max-restarts", "3", str(script), raw=True)
    assert (done.returncode, done.stdout) == (0, "done in attempt 1\n"), done.stderr
