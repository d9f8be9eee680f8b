"""Jobs of two ranks under a launcher that fail or stand still: what they say, and none is left.

`test_interrupted_trainings.py` has those of the real train.py, which starts its ranks itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.distributed.jobs import FLAGS, start_job

JOBS_AT_ONCE = 3
IMPATIENT = (*FLAGS, "--timeout", "3")


class Case(NamedTuple):
    """A job, and what happens to it."""

    how: str = "nothing"
    rank: int = 0
    phase: str = ""
    flags: tuple[str, ...] = FLAGS

    def run(self, folder: Path) -> tuple[int, str]:
        plan = {"how": self.how, "rank": self.rank, "phase": self.phase, "seconds": 0.2}
        job = start_job(folder, plan, self.flags, raw=True)
        return job.end(folder / self.phase if self.phase else None)


CASES = {
    "defect": Case("raise", 1, "training"),
    "mistake of all": Case(flags=(*FLAGS, "--batch", "5")),
    "hang": Case("stand still", 1, "validation", IMPATIENT),
}


@pytest.fixture(scope="module")
def running(tmp_path_factory) -> Iterator[dict[str, Future[tuple[int, str]]]]:
    """All jobs, a few at a time: they wait more than they compute."""
    with ThreadPoolExecutor(JOBS_AT_ONCE) as pool:
        yield {
            name: pool.submit(case.run, tmp_path_factory.mktemp("job"))
            for name, case in CASES.items()
        }


def test_an_exception_of_one_rank_is_seen_and_ends_the_job(running):
    code, text = running["defect"].result()
    assert code == 1, text
    assert text.index("rank 1: Traceback") < text.index("RuntimeError: a defect")


def test_what_all_ranks_find_wrong_is_reported_once(running):
    code, text = running["mistake of all"].result()
    assert code == 1
    assert text.count("error: --batch-size 5 is the total over 2") == 1, text
    assert "rank 1: error" not in text


def test_a_rank_that_stands_still_is_named_and_shown(running):
    code, text = running["hang"].result()
    assert code == 1, text
    still = r"rank 1 \(.*no progress for [34] s in validation, step 3 \(--timeout 3\)"
    assert re.search(still, text), text
    assert "in go_wrong" in text  # the stack
