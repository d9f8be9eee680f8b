"""The real train.py as two ranks that are suspended, killed, fail or have different clocks.

Each test goes on with one run, until the last lets it come to its end.
"""

import csv
import json
import shutil
import sys

import numpy as np

from duet.utils.processes.exit_status import (
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_SUSPENDED,
)
from duet.utils.processes.start import EXIT_USER_ERROR
from duet.utils.weights.checkpoint import load_checkpoint
from tests.distributed.conftest import SCRIPT
from tests.train.short_runs import assert_equal_runs

# Sums of float32 in another order, 1e-7 relative, through eight more steps.
ROUNDING = 1e-4
WORKER = ("--workers", 1)  # of each rank


def test_rank_killed_while_saving_ends_the_job_and_is_named(runs):
    code, text = runs.end("cut", *WORKER, how="kill_while_writing", rank=0, phase="saving")
    assert code == EXIT_FAILED, text
    lines = [line for line in text.splitlines() if "ending the job" in line]
    assert lines == ["error: rank 0 was killed by SIGKILL; ending the job"], text


def test_rank_killed_before_joining_ends_the_job(runs):
    training = runs.start("cut", how="kill", rank=1, phase="joining")
    code, text = training.end(after=runs.temporary / "joining")
    assert code == EXIT_FAILED, text


def test_signal_during_validation_suspends_all_ranks(runs):
    code, text = runs.end("cut", how="ask_command", rank=1, phase="validation", step=1)
    assert code == EXIT_SUSPENDED, text
    assert text.count("suspended after 6 batches: SIGUSR1; ") == 1
    header = load_checkpoint(runs.folder / "cut" / "weights" / "last.safetensors").header
    assert (header.batch_number, header.epoch) == (6, 0)


def test_suspend_file_works_under_a_plain_launcher(runs):
    file = runs.folder / "stop"
    code, text = runs.end(
        "cut", "--suspend-file", file, how="make_file", rank=1, phase="training", step=4, raw=True
    )
    file.unlink()
    assert code == EXIT_FAILED, text  # to which launchers turn all codes but 0
    assert text.count("suspended after 10 batches") == 1, text
    header = load_checkpoint(runs.folder / "cut" / "weights" / "last.safetensors").header
    assert header.last_update < header.batch_number - 1
    shutil.copytree(runs.folder / "cut", runs.folder / "pending")


def test_full_disk_of_one_rank_leaves_the_states_whole(runs):
    before = runs.states("cut")
    code, text = runs.end("cut", how="fill_disk", rank=0, phase="validation", step=1)
    assert code == EXIT_USER_ERROR, text
    assert text.count("could not be written (File too large)") == 1, text
    assert runs.states("cut") == before


def test_control_c_saves_the_state_and_ends_all_ranks(runs):
    training = runs.start("cut", *WORKER, how="interrupt_command", rank=1, phase="training", step=2)
    code, text = training.end()
    assert (code, text.count("interrupted")) == (EXIT_INTERRUPTED, 1), text
    state = load_checkpoint(runs.folder / "cut" / "weights" / "last.safetensors")
    line = f"{sys.executable} {SCRIPT} --nproc 2 --resume {runs.folder / 'cut'}\n"
    assert f"interrupted after {state.header.batch_number} batches; continue with {line}" in text
    assert state.header.batch_number > 10, text  # which the test before left
    assert "Traceback" not in text and "ending the job" not in text


def test_interrupted_run_ends_like_the_uninterrupted_one(runs, whole):
    code, text = runs.end("cut")
    assert code == EXIT_DONE, text
    assert_equal_runs(runs.folder / "cut", whole.folder)
    assert not list((runs.folder / "cut").rglob(".*"))


def test_resuming_on_one_rank_differs_only_by_rounding(runs, whole):
    code, text = runs.end("pending", "--resume", runs.folder / "pending", ranks=1)
    assert code == EXIT_DONE, text
    found, wanted = (
        load_checkpoint(folder / "weights" / "last.safetensors")
        for folder in (runs.folder / "pending", whole.folder)
    )
    assert found.header.batch_number == wanted.header.batch_number
    for section in ("model", "ema", "optimizer"):
        for name, array in getattr(wanted, section).items():
            scale = max(np.abs(array).max(initial=0), 1e-3)
            difference = np.abs(getattr(found, section)[name] - array).max(initial=0) / scale
            print(section, name, difference)
            assert difference < ROUNDING, (section, name, difference)


def test_time_limit_ends_both_ranks_after_a_validation(runs):
    flags = ("--epochs", 9, "--noval", "--nosave", "--time", "1e-9")
    code, text = runs.end("timed", *flags)
    assert code == EXIT_DONE, text
    assert (
        text.count("early after epoch 1 of 9: --time 1e-09: reached the limit of 1e-09 hours") == 1
    )
    folder = runs.folder / "timed"
    assert [path.name for path in folder.glob("weights/*")] == ["last.safetensors"]
    with open(folder / "results.csv", newline="", encoding="utf-8") as file:
        (row,) = csv.DictReader(file)
    assert row["metrics/recall"] != "" and float(row["val/box_loss"]) > 0
    assert json.loads((folder / "work.json").read_text())["work"]["epochs"] == 1
    progress = load_checkpoint(folder / "weights" / "last.safetensors").header.progress
    assert progress["world_size"] == 2
