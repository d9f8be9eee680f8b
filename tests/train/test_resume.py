"""A run that was interrupted, however and wherever, ends where an uninterrupted one ends."""

import contextlib
import itertools
import os
import stat

import numpy as np
import pytest

import train
from duet.models.heads.anchor.head import AnchorHead
from duet.models.training import loop
from duet.utils.errors import UserError
from duet.utils.processes.suspend import Suspended
from duet.utils.weights.checkpoint import load_checkpoint
from tests.train.short_runs import Killed, StopAt, assert_equal_runs, folder_of, short_flags, start

EPOCHS, TRAIN_BATCHES, VAL_BATCHES = 3, 6, 2
BOUNDARIES = EPOCHS * (TRAIN_BATCHES + VAL_BATCHES)
STOPS = 8


def die(*arguments):
    raise Killed


@pytest.fixture(scope="module")
def flags(tmp_path_factory):
    """train.py's flags for runs with 6 batches an epoch and 2 a validation."""
    more = ("--batch", 2, "--epochs", EPOCHS, "--image-weights")
    return short_flags(tmp_path_factory.mktemp("inputs"), *more)


@pytest.fixture(scope="module")
def whole(flags):
    """The folder of a run without interruption."""
    stop = StopAt()
    start([*flags, "--name", "whole"], stop)
    assert stop.asked == BOUNDARIES
    return folder_of(flags, "whole")


def test_finished_run_needs_nothing_but_refuses_other_flags(flags, whole, monkeypatch, caplog):
    command = ["train.py", *flags, "--name", "whole", "--resume", "auto"]
    monkeypatch.setattr("sys.argv", command)
    with caplog.at_level("INFO"):
        train.main()
    assert f"{whole} is already finished" in caplog.text
    monkeypatch.setattr("sys.argv", [*command, "--epochs", str(EPOCHS + 1)])
    with pytest.raises(UserError, match=f"epochs is {EPOCHS + 1} instead of {EPOCHS}"):
        train.main()


def test_run_suspended_at_each_boundary_ends_identically(flags, whole):
    stops, count, saved = 0, 1, -1  # a validation in which it stops is done again
    while not interrupt([*flags, "--name", "each", "--resume", "auto"], "suspended", count):
        state = load_checkpoint(folder_of(flags, "each") / "weights" / "last.safetensors")
        stops, before, saved = stops + 1, saved, state.header.batch_number
        count = count + 1 if saved == before else 1
        assert stops <= BOUNDARIES
    assert stops == BOUNDARIES
    assert_equal_runs(folder_of(flags, "each"), whole)


def test_run_interrupted_at_random_moments_ends_identically(flags, whole):
    generator = np.random.default_rng(0)
    stops = {"suspended": 0, "killed": 0, "killed while writing": 0}
    for number in itertools.count():
        if sum(stops.values()) >= STOPS:
            break
        run = [*flags, "--name", f"cut{number}-", "--resume", "auto", "--save-steps", "2"]
        finished = False
        while not finished:
            kind = str(generator.choice(list(stops), p=(0.6, 0.2, 0.2)))
            finished = interrupt(run, kind, int(generator.integers(1, 6)))
            stops[kind] += not finished
        # One that was killed before its first state has left a folder without work.json.
        project = folder_of(flags, "whole").parent
        (folder,) = (path.parent for path in project.glob(f"cut{number}-*/work.json"))
        assert_equal_runs(folder, whole)
        assert not [*folder.glob(".*"), *folder.glob("weights/.*")]
    assert min(stops.values()) > 0


def interrupt(arguments, kind, count):
    """Run until the count-th boundary, or write; tell whether the run ended before that."""
    with pytest.MonkeyPatch.context() as patch:
        if kind == "killed while writing":
            kill_in_write(patch, count)
        count = None if kind == "killed while writing" else count
        try:
            start(arguments, StopAt(count, kill=kind == "killed"))
        except Suspended as suspended:
            assert "the test asks" in str(suspended) and "--resume" in str(suspended)
            return False
        except Killed:
            return False
    return True


def kill_in_write(patch, count):
    """Die at the count-th write, which may have renamed already or leaves part of a file."""
    writes = itertools.count(1)
    fsync = os.fsync

    def dying(descriptor):
        fsync(descriptor)
        if next(writes) >= count:
            patch.setattr("pathlib.Path.unlink", lambda *arguments, **options: None)
            if stat.S_ISREG(os.fstat(descriptor).st_mode):  # not the folder, after the renaming
                os.truncate(descriptor, 1000)
            raise Killed

    patch.setattr(os, "fsync", dying)


def test_run_killed_after_its_last_state_ends_on_resume(flags, whole, tmp_path, monkeypatch):
    run = [*flags, "--project", str(tmp_path)]
    with monkeypatch.context() as patch:
        patch.setattr(loop, "conclude_run", die)
        with pytest.raises(Killed):
            start(run)
    start([*run, "--resume"])
    assert_equal_runs(tmp_path / "exp", whole)


def test_best_epoch_is_reported_after_a_resume(flags, tmp_path, monkeypatch, capsys):
    run = [*flags, "--project", str(tmp_path)]
    fitness = iter((0.1, 0.9, 0.2))
    monkeypatch.setattr(AnchorHead, "fitness", lambda *arguments: next(fitness))
    shown = []
    for arguments in (run, [*run, "--resume"]):
        with monkeypatch.context() as patch:
            if arguments is run:
                patch.setattr(loop, "write_work", die)
            with contextlib.suppress(Killed):
                start(arguments)
        shown.append(capsys.readouterr().out)
        assert "\nbest: epoch 2 of 3  P " in shown[-1]
        assert "weights: last.safetensors, best.safetensors\nnext:\n" in shown[-1]
        assert shown[-1].count("/weights/best.safetensors") == 3
    assert shown[0] == shown[1]
    for name in ("work.json", "weights/best.safetensors"):
        (tmp_path / "exp" / name).unlink()
    start([*run, "--resume"])
    reported = capsys.readouterr().out
    assert "best: " not in reported and "weights: last.safetensors\n" in reported
    assert reported.count("/weights/last.safetensors") == 3
