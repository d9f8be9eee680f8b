"""The checks of `tests/conformance/checks_dist.py`, in two processes that work together."""

import json
from pathlib import Path
from typing import Any

import pytest

from duet import backend
from tests.conformance.judging import Check, all_checks
from tests.distributed.jobs import run_ranks

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
def test_restarted_ranks_do_not_meet_killed_ones() -> None:
    again = ["--max-restarts", "3", "-m", "tests.distributed.restarted"]
    done = run_ranks(2, *again, raw=True)
    assert (done.returncode, done.stdout) == (0, "done in attempt 1\n"), done.stderr
