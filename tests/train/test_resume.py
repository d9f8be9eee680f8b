"""A run that was interrupted, however and wherever, ends where an uninterrupted one ends."""

import contextlib
import dataclasses
import itertools
import os
import stat

import numpy as np
import pytest

import backend
import train
from models.heads.anchor.head import AnchorHead
from models.training import job
from models.training.checkpointing import capture
from tests.equal_runs import SECTIONS, assert_equal_runs, rows, timeless
from tests.small import write_small_dataset, write_tiny_model
from tests.train.short_runs import Killed, StopAt, folder_of, start
from utils.errors import UserError
from utils.processes.suspend import Suspended
from utils.state.checkpoint import load_checkpoint, save_checkpoint
from utils.state.files import StateFiles

EPOCHS, TRAIN_BATCHES, VAL_BATCHES = 3, 6, 2
BOUNDARIES = EPOCHS * (TRAIN_BATCHES + VAL_BATCHES)
PENDING = 5  # batches, after which gradients wait for their update
STOPS = {"torch": 50, "oneflow": 25}  # OneFlow computes a batch ten times as long


def die(*arguments):
    raise Killed


@pytest.fixture(scope="module")
def flags(tmp_path_factory):
    """train.py's flags for runs with 6 batches an epoch and 2 a validation."""
    folder = tmp_path_factory.mktemp("inputs")
    data, cfg = write_small_dataset(folder), write_tiny_model(folder)
    return [
        "--data", str(data), "--cfg", str(cfg), "--img", "64", "--batch", "2", "--workers", "0",
        "--device", "cpu", "--epochs", str(EPOCHS), "--project", str(folder), "--image-weights",
        "--noplots", "--autobalance",
    ]  # fmt: skip


@pytest.fixture(scope="module")
def whole(flags):
    """The folder of a run without interruption."""
    stop = StopAt()
    start([*flags, "--name", "whole"], stop)
    assert stop.asked == BOUNDARIES
    return folder_of(flags, "whole")


def test_a_finished_run_is_nothing_to_do_but_not_for_other_flags(flags, whole, monkeypatch, caplog):
    command = ["train.py", *flags, "--name", "whole", "--resume", "auto"]
    monkeypatch.setattr("sys.argv", command)
    with caplog.at_level("INFO"):
        train.main()
    assert f"{whole} is finished, nothing is left to do" in caplog.text
    monkeypatch.setattr("sys.argv", [*command, "--epochs", str(EPOCHS + 1)])
    with pytest.raises(UserError, match=f"epochs is {EPOCHS + 1}, in the run {EPOCHS}"):
        train.main()


def test_two_runs_are_equal_bit_for_bit(flags, whole):
    start([*flags, "--name", "again"])
    assert_equal_runs(folder_of(flags, "again"), whole)


def test_runs_interrupted_at_random_moments_end_as_the_uninterrupted_one(flags, whole):
    generator = np.random.default_rng(0)
    stops = {"suspended": 0, "killed": 0, "killed while writing": 0}
    for number in itertools.count():
        if sum(stops.values()) >= STOPS[backend.use()]:
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
    """Run until the so-manieth boundary, or write; whether the run ended before that."""
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
    """Die at the so-manieth write, which may have renamed already or leaves part of a file."""
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


def test_restoring_a_state_gives_that_state(flags, tmp_path, monkeypatch):
    run = [*flags, "--project", str(tmp_path)]
    with pytest.raises(Suspended):
        start(run, StopAt(5))
    (path,) = (tmp_path / "exp" / "weights").glob("state-*")
    seen = []
    monkeypatch.setattr(job, "train", lambda run, state, *loaders: seen.append((run, state)))
    monkeypatch.setattr(job, "conclude_run", lambda *arguments: None)
    start([*run, "--resume"])
    again, stored = capture(*seen[0]), load_checkpoint(path)
    assert timeless(again.header) == timeless(stored.header)
    for section in SECTIONS:
        for name, array in getattr(stored, section).items():
            np.testing.assert_array_equal(getattr(again, section)[name], array)


def test_a_state_from_before_a_flag_a_counter_and_a_column_goes_on_to_the_same_end(
    flags, whole, tmp_path
):
    run = [*flags, "--project", str(tmp_path)]
    with pytest.raises(Suspended):
        start(run, StopAt(TRAIN_BATCHES + VAL_BATCHES + PENDING))
    path, *_ = StateFiles(tmp_path / "exp", 2).newest_first()
    stored = load_checkpoint(path)
    settings, progress = dict(stored.header.settings), dict(stored.header.progress)
    for name in ("amp", "layout", "save_steps"):
        del settings[name]
    del progress["finite_updates"], progress["loss_names"]
    recall = progress["columns"].index("metrics/recall")
    for cells in (progress["columns"], *progress["results"]):
        del cells[recall]
    header = dataclasses.replace(stored.header, settings=settings, progress=progress)
    save_checkpoint(path, dataclasses.replace(stored, header=header))
    start([*run, "--resume"])
    found, expected = (
        load_checkpoint(folder / "weights" / "last.safetensors")
        for folder in (tmp_path / "exp", whole)
    )
    for section in SECTIONS:
        for name, array in getattr(expected, section).items():
            np.testing.assert_array_equal(getattr(found, section)[name], array)
    first, *others = rows(whole)
    assert rows(tmp_path / "exp") == [{**first, "metrics/recall": ""}, *others]


def test_a_damaged_newest_state_is_passed_over_with_a_line(flags, whole, tmp_path, caplog):
    run = [*flags, "--project", str(tmp_path)]
    with pytest.raises(Suspended):
        start([*run, "--save-steps", "3"], StopAt(4))
    newest, older = StateFiles(tmp_path / "exp", 2).newest_first()
    content = bytearray(newest.read_bytes())
    content[-100] ^= 1
    newest.write_bytes(content)  # also `last`, which is the same file
    start([*run, "--resume"])
    assert f"{newest}: damaged: its content does not fit its checksum" in caplog.text
    assert "trying the state before it" in caplog.text
    assert_equal_runs(tmp_path / "exp", whole)


@pytest.mark.parametrize("failure", ["fsync", "replace"])
def test_a_state_that_cannot_be_written_ends_the_run_and_the_last_one_stays(
    flags, whole, tmp_path, monkeypatch, failure
):
    run = [*flags, "--project", str(tmp_path)]
    with pytest.raises(Suspended):
        start(run, StopAt(3))
    weights = tmp_path / "exp" / "weights"
    before = {path.name: path.read_bytes() for path in weights.iterdir()}
    with monkeypatch.context() as patch:

        def refuse(*arguments):
            raise OSError(28, "No space left on device")

        patch.setattr(os, failure, refuse)
        with pytest.raises((UserError, OSError), match="No space left"):
            start([*run, "--resume"], StopAt(2))
    assert {path.name: path.read_bytes() for path in weights.iterdir()} == before
    start([*run, "--resume"])
    assert_equal_runs(tmp_path / "exp", whole)


def test_a_run_killed_after_its_last_state_is_concluded_by_a_resumption(
    flags, whole, tmp_path, monkeypatch
):
    run = [*flags, "--project", str(tmp_path)]
    with monkeypatch.context() as patch:
        patch.setattr(job, "conclude_run", die)
        with pytest.raises(Killed):
            start(run)
    start([*run, "--resume"])
    assert_equal_runs(tmp_path / "exp", whole)


def test_the_best_epoch_is_told_though_a_resumption_did_not_see_it(
    flags, tmp_path, monkeypatch, capsys
):
    run = [*flags, "--project", str(tmp_path)]
    fitness = iter((0.1, 0.9, 0.2))
    monkeypatch.setattr(AnchorHead, "fitness", lambda *arguments: next(fitness))
    shown = []
    for arguments in (run, [*run, "--resume"]):
        with monkeypatch.context() as patch:
            if arguments is run:
                patch.setattr(job, "write_work", die)
            with contextlib.suppress(Killed):
                start(arguments)
        shown.append(capsys.readouterr().out)
        assert "\nbest: epoch 2 of 3  P " in shown[-1]
        assert "/best.safetensors" in shown[-1].splitlines()[-1]
    assert shown[0] == shown[1]
    for name in ("work.json", "weights/best.safetensors"):
        (tmp_path / "exp" / name).unlink()
    start([*run, "--resume"])
    told = capsys.readouterr().out
    assert "best: " not in told and "/last.safetensors" in told.splitlines()[-1]


@pytest.mark.parametrize(
    "lie",
    [
        {"batch_number": TRAIN_BATCHES + 1},
        {"epoch": EPOCHS + 1, "batch_number": (EPOCHS + 1) * TRAIN_BATCHES},
        {"epoch": 1},
        {"last_update": PENDING},
        {"progress": {"scores_before_epoch": {"1": [0.5]}}},
        {"progress": {"scores_before_epoch": {"first": [0.5] * 5}}},
        {"progress": {"class_scores": [0.5, 0.5, 0.5, 0.5, 1.5]}},
        {"progress": {"class_scores": [0.5, 0.5, 0.5, 0.5, float("nan")]}},
    ],
)
def test_a_state_that_contradicts_itself_is_refused(flags, tmp_path, lie, cut_run):
    stored = load_checkpoint(cut_run)
    lie = {**lie, "progress": {**stored.header.progress, **lie.get("progress", {})}}
    header = dataclasses.replace(stored.header, **lie)
    (tmp_path / "weights").mkdir()
    path = tmp_path / "weights" / "state-00000002.safetensors"
    save_checkpoint(path, dataclasses.replace(stored, header=header))
    with pytest.raises(UserError, match="--resume: the state does not fit"):
        start(["--resume", str(tmp_path)])


@pytest.fixture(scope="module")
def cut_run(flags, tmp_path_factory):
    """A state in the middle of an update."""
    project = tmp_path_factory.mktemp("cut")
    with pytest.raises(Suspended):
        start([*flags, "--project", str(project)], StopAt(PENDING))
    (path,) = (project / "exp" / "weights").glob("state-*")
    header = load_checkpoint(path).header
    assert header.last_update < header.batch_number - 1
    return path


def test_another_number_of_images_or_another_label_is_refused(flags, tmp_path, monkeypatch):
    run = [*flags, "--project", str(tmp_path)]
    with pytest.raises(Suspended):
        start(run, StopAt(1))
    load_split = train.load_split
    monkeypatch.setattr(train, "load_split", lambda *arguments: load_split(*arguments)[1:])
    with pytest.raises(UserError, match="11 images now, 12 then"):
        start([*run, "--resume"])
    monkeypatch.setattr(train, "load_split", lambda *arguments: relabelled(load_split(*arguments)))
    with pytest.raises(UserError, match="images or labels"):
        start([*run, "--resume"])


def relabelled(samples):
    first = dataclasses.replace(samples[0], class_index=samples[0].class_index + 1)
    return [first, *samples[1:]]
