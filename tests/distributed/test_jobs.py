"""Jobs of two ranks that fail, stand still or are ended: what they say, and that none is left."""

from __future__ import annotations

import random
import signal

import pytest

from tests.distributed.jobs import FLAGS, Job
from utils.exit_status import EXIT_INTERRUPTED, EXIT_SUSPENDED, EXIT_USER_ERROR

MOMENTS = random.Random(5)
KILLS = [
    pytest.param(rank, phase, MOMENTS.uniform(0, 0.5), raw, id=f"rank {rank} in {phase}")
    for rank, phase, raw in (
        (0, "caching", True),
        (1, "training", True),
        (1, "validation", False),
        (0, "saving", False),
    )
]


@pytest.mark.parametrize(("rank", "phase", "seconds", "raw"), KILLS)
def test_a_killed_rank_ends_the_job(tmp_path, rank, phase, seconds, raw):
    plan = {"how": "kill", "rank": rank, "phase": phase, "seconds": seconds}
    code, text = Job(tmp_path, raw, plan).end(phase)
    assert code == 1, text
    line = next(line for line in text.splitlines() if "died or was killed" in line)
    assert f"rank {rank} (" in line and f"in {phase}" in line and "the job ends" in line


def test_an_exception_of_one_rank_is_seen_and_ends_the_job(tmp_path):
    code, text = Job(tmp_path, True, {"how": "raise", "rank": 1, "phase": "training"}).end(
        "training"
    )
    assert code == 1, text
    message, end = text.index("rank 1: Traceback"), text.index("ended with exit code 1")
    assert message < text.index("RuntimeError: a defect") < end
    assert "in training, step 3" in text[end:].splitlines()[0]


@pytest.mark.parametrize("phase", ["joining", "caching"])
def test_what_one_rank_finds_wrong_is_said_once_and_is_the_users_error(tmp_path, phase):
    plan = {"how": "user error", "rank": 1, "phase": phase}
    code, text = Job(tmp_path, False, plan).end(phase)
    assert code == EXIT_USER_ERROR, text
    assert text.count("a picture is missing") == 1
    assert "rank 1: error: a picture is missing" in text


def test_what_all_ranks_find_wrong_is_said_once(tmp_path):
    code, text = Job(tmp_path, True, {}, (*FLAGS, "--batch", "5")).end()
    assert code == 1
    assert text.count("error: --batch-size 5 is the number of images of all 2") == 1, text
    assert "rank 1: error" not in text


def test_a_rank_that_stands_still_is_named_and_shown(tmp_path):
    plan = {"how": "stand still", "rank": 1, "phase": "validation", "timeout": 2}
    code, text = Job(tmp_path, False, plan).end("validation")
    assert code == 1, text
    assert "rank 1 (" in text and "no progress for 2 s in validation, step 3" in text
    assert "in go_wrong" in text  # the stack


@pytest.mark.parametrize("raw", [True, False], ids=["launcher", "command"])
def test_control_c_leaves_no_process(tmp_path, raw):
    job = Job(tmp_path, raw, {"how": "nothing", "rank": 0, "phase": "training"})
    job.wait_for("training")
    job.process.send_signal(signal.SIGINT)
    code, text = job.end("training")
    assert code == EXIT_INTERRUPTED or (raw and code != 0), text


def test_a_killed_command_leaves_no_process(tmp_path):
    job = Job(tmp_path, False, {"how": "nothing", "rank": 0, "phase": "training"})
    job.wait_for("training")
    job.process.kill()
    assert job.end("training")[0] == -signal.SIGKILL


def test_a_signal_to_the_command_suspends_all_ranks(tmp_path):
    job = Job(tmp_path, False, {"how": "nothing", "rank": 0, "phase": "training"})
    job.wait_for("training")
    job.process.send_signal(signal.SIGTERM)
    code, text = job.end("training")
    assert (code, "Traceback" in text) == (EXIT_SUSPENDED, False), text


@pytest.mark.parametrize("raw", [True, False], ids=["launcher", "command"])
def test_a_job_without_trouble_ends_well(tmp_path, raw):
    code, text = Job(tmp_path, raw, {}).end("saving")
    assert (code, text.count("all done")) == (0, 1), text
    assert ("starting 2 processes" in text) is not raw
