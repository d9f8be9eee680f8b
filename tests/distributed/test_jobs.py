"""Jobs of two ranks that fail, stand still or are ended: what they say, and that none is left."""

from __future__ import annotations

import random
import re
import signal
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.distributed.jobs import FLAGS, Job
from utils.processes.exit_status import EXIT_INTERRUPTED, EXIT_SUSPENDED
from utils.processes.start import EXIT_USER_ERROR

JOBS_AT_ONCE = 3
MOMENTS = random.Random(5)


class Case(NamedTuple):
    """A job, and what happens to it."""

    how: str = "nothing"
    rank: int = 0
    phase: str = ""
    raw: bool = False  # started by the launcher itself, not by the command
    details: dict[str, float] = {}
    flags: tuple[str, ...] = FLAGS
    number: signal.Signals | None = None  # that the launcher or the command gets

    def run(self, folder: Path) -> tuple[int, str]:
        plan = {"how": self.how, "rank": self.rank, "phase": self.phase, **self.details}
        job = Job(folder, self.raw, plan, self.flags)
        if self.number is not None:
            job.wait_for(self.phase)
            job.process.send_signal(self.number)
        return job.end(self.phase)


class Ended(NamedTuple):
    case: Case
    code: int
    text: str


def of(**cases: Case) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("ended", cases.values(), ids=cases, indirect=True)


@pytest.fixture(scope="module")
def running(request, tmp_path_factory) -> Iterator[dict[str, Future[tuple[int, str]]]]:
    """The jobs of all tests that run, a few at a time: they wait more than they compute."""
    pool = ThreadPoolExecutor(JOBS_AT_ONCE)
    try:
        yield {
            item.nodeid: pool.submit(
                item.callspec.params["ended"].run, tmp_path_factory.mktemp("job")
            )
            for item in request.session.items
            if item.module is request.module
        }
    finally:
        pool.shutdown(cancel_futures=True)


@pytest.fixture
def ended(request, running) -> Ended:
    return Ended(request.param, *running[request.node.nodeid].result())


def killed(rank: int, phase: str, **how: Any) -> Case:
    return Case("kill", rank, phase, details={"seconds": MOMENTS.uniform(0, 0.5)}, **how)


@of(
    rank_0_in_caching=killed(0, "caching", raw=True),
    rank_1_in_training=killed(1, "training", raw=True),
    rank_1_in_validation=killed(1, "validation"),
    rank_0_in_saving=killed(0, "saving"),
)
def test_a_killed_rank_ends_the_job(ended):
    assert ended.code == 1, ended.text
    line = next(line for line in ended.text.splitlines() if "died or was killed" in line)
    assert f"rank {ended.case.rank} (" in line
    assert f"in {ended.case.phase}" in line and "the job ends" in line


@of(launcher=Case("raise", 1, "training", raw=True))
def test_an_exception_of_one_rank_is_seen_and_ends_the_job(ended):
    code, text = ended.code, ended.text
    assert code == 1, text
    message, end = text.index("rank 1: Traceback"), text.index("ended with exit code 1")
    assert message < text.index("RuntimeError: a defect") < end
    assert "in training, step 3" in text[end:].splitlines()[0]


@of(joining=Case("user error", 1, "joining"), caching=Case("user error", 1, "caching"))
def test_what_one_rank_finds_wrong_is_said_once_and_is_the_users_error(ended):
    assert ended.code == EXIT_USER_ERROR, ended.text
    assert ended.text.count("an image is missing") == 1
    assert "rank 1: error: an image is missing" in ended.text


@of(launcher=Case(raw=True, flags=(*FLAGS, "--batch", "5")))
def test_what_all_ranks_find_wrong_is_said_once(ended):
    code, text = ended.code, ended.text
    assert code == 1
    assert text.count("error: --batch-size 5 is the number of images of all 2") == 1, text
    assert "rank 1: error" not in text


@of(command=Case("stand still", 1, "validation", details={"timeout": 3}))
def test_a_rank_that_stands_still_is_named_and_shown(ended):
    code, text = ended.code, ended.text
    assert code == 1, text
    # The rank that is behind may have stood still for less than the timeout: the others wait. On a
    # busy machine its last report may be that of the phase's begin, before its steps.
    still = r"rank 1 \(.*no progress for [23] s in validation(, step [123])? \(--timeout 3\)"
    assert re.search(still, text), text
    assert "in go_wrong" in text  # the stack


@of(
    launcher=Case(phase="training", raw=True, number=signal.SIGINT),
    command=Case(phase="training", number=signal.SIGINT),
)
def test_control_c_leaves_no_process(ended):
    raw = ended.case.raw
    assert ended.code == EXIT_INTERRUPTED or (raw and ended.code != 0), ended.text


@of(command=Case(phase="training", number=signal.SIGKILL))
def test_a_killed_command_leaves_no_process(ended):
    assert ended.code == -signal.SIGKILL


@of(command=Case(phase="training", number=signal.SIGTERM))
def test_a_signal_to_the_command_suspends_all_ranks(ended):
    assert (ended.code, "Traceback" in ended.text) == (EXIT_SUSPENDED, False), ended.text
