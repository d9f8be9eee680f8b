"""Jobs of two ranks that fail, stand still or are ended: what they report, and that none is left.

`test_interrupted_trainings.py` has those of the real train.py.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.distributed.jobs import FLAGS, start_job
from utils.processes.start import EXIT_USER_ERROR

JOBS_AT_ONCE = 3
IMPATIENT = (*FLAGS, "--timeout", "3")


class Case(NamedTuple):
    """A job, and what happens to it."""

    how: str = "nothing"
    rank: int = 0
    phase: str = ""
    flags: tuple[str, ...] = FLAGS
    raw: bool = True  # started by the launcher itself, not by the command
    number: signal.Signals | None = None  # that the launcher gets

    def run(self, folder: Path) -> tuple[int, str]:
        plan = {"how": self.how, "rank": self.rank, "phase": self.phase, "seconds": 0.2}
        job = start_job(folder, plan, self.flags, self.raw)
        if self.number is not None:
            job.wait_for(folder / self.phase)
            job.process.send_signal(self.number)
        return job.end(folder / self.phase if self.phase else None)


CASES = {
    "rank 0 killed": Case("kill", 0, "caching"),
    "rank 1 killed": Case("kill", 1, "training"),
    "defect": Case("raise", 1, "training"),
    "mistake of one": Case("user error", 1, "joining", raw=False),
    "mistake of all": Case(flags=(*FLAGS, "--batch", "5")),
    "hang": Case("stand still", 1, "validation", IMPATIENT, raw=False),
    "hang under a launcher": Case("stand still", 1, "validation", IMPATIENT),
    "Ctrl-C": Case(phase="training", number=signal.SIGINT),
}


@pytest.fixture(scope="module")
def running(tmp_path_factory) -> Iterator[dict[str, Future[tuple[int, str]]]]:
    """All jobs, a few at a time: they wait more than they compute."""
    with ThreadPoolExecutor(JOBS_AT_ONCE) as pool:
        yield {
            name: pool.submit(case.run, tmp_path_factory.mktemp("job"))
            for name, case in CASES.items()
        }


@pytest.mark.parametrize("name", ["rank 0 killed", "rank 1 killed"])
def test_a_killed_rank_ends_the_job(running, name):
    code, text = running[name].result()
    assert code == 1, text


def test_an_exception_of_one_rank_is_seen_and_ends_the_job(running):
    code, text = running["defect"].result()
    assert code == 1, text
    assert text.index("rank 1: Traceback") < text.index("RuntimeError: a defect")


def test_what_one_rank_finds_wrong_is_reported_once_and_is_the_users_error(running):
    code, text = running["mistake of one"].result()
    assert (code, text.count("an image is missing")) == (EXIT_USER_ERROR, 1), text
    assert "rank 1: error: an image is missing" in text


def test_what_all_ranks_find_wrong_is_reported_once(running):
    code, text = running["mistake of all"].result()
    assert code == 1
    assert text.count("error: --batch-size 5 is the number of images of all 2") == 1, text
    assert "rank 1: error" not in text


@pytest.mark.parametrize("name", ["hang", "hang under a launcher"])
def test_a_rank_that_stands_still_is_named_and_shown(running, name):
    code, text = running[name].result()
    assert code == 1, text
    still = r"rank 1 \(.*no progress for [34] s in validation, step 3 \(--timeout 3\)"
    assert re.search(still, text), text
    assert "in go_wrong" in text  # the stack


def test_control_c_ends_the_job(running):
    code, text = running["Ctrl-C"].result()
    assert code != 0, text
