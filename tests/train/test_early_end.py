"""Runs that end early, and what they keep, draw and validate; interrupted ones do the same."""

import json
import sys

import pytest

from duet.models.heads.anchor.head import AnchorHead
from duet.models.training import outputs
from duet.models.training.step_watch import StageTimer
from duet.utils.errors import UserError
from duet.utils.processes.suspend import Suspended
from duet.utils.report import task_reports
from duet.utils.weights.checkpoint import load_checkpoint
from tests.train.short_runs import StopAt, assert_equal_runs, folder_of, rows, short_flags, start
from tests.train.test_resume import die

EPOCHS, BOUNDARIES = 5, 3  # of two batches and one of the validation an epoch
# Epoch 3 is as good as the one before, and nothing is better after it.
FITNESS = (0.1, 0.3, 0.3, 0.2, 0.1)
PLOTS = ("plot_batch", "plot_labels", "plot_results")


@pytest.fixture(scope="module")
def flags(tmp_path_factory):
    return short_flags(tmp_path_factory.mktemp("inputs"), "--batch", 6, "--epochs", EPOCHS)


def set_fitness(patch, values=FITNESS):
    """Give the epochs that are validated from now on these figures."""
    figures = iter(values)
    patch.setattr(AnchorHead, "fitness", lambda *arguments: next(figures))


def finish(arguments, boundaries):
    """Run in parts of so many boundaries, to the end; return how many parts there were."""
    parts = 1
    while True:
        try:
            start([*arguments, "--resume", "auto"], StopAt(boundaries))
        except Suspended:
            parts += 1
        else:
            return parts


def weights(folder):
    return sorted(path.name.removesuffix(".safetensors") for path in folder.glob("weights/*"))


@pytest.fixture(scope="module")
def patient_flags(flags):
    return [
        *flags, "--epochs", "6", "--patience", "2", "--label-smoothing", "0.1", "--save-period",
        "2", "--keep", "1",
    ]  # fmt: skip


@pytest.fixture(scope="module")
def whole(patient_flags):
    """The folder of a run of six epochs that ends after the fifth, without interruption."""
    with pytest.MonkeyPatch.context() as patch:
        set_fitness(patch)
        start([*patient_flags, "--name", "whole"])
    return folder_of(patient_flags, "whole")


def test_run_ends_after_patience_and_keeps_its_weights(whole):
    last, best = (load_checkpoint(whole / "weights" / f"{x}.safetensors") for x in ("last", "best"))
    assert (last.header.epoch, best.header.epoch) == (5, 3)
    assert (last.header.best_fitness, last.header.progress["best_epoch"]) == (0.3, 3)
    assert weights(whole) == ["best", "epoch0", "epoch2", "epoch4", "last", "state-00000010"]
    for number in (0, 2, 4):
        kept = load_checkpoint(whole / "weights" / f"epoch{number}.safetensors")
        assert kept.header.epoch == number + 1 and kept.optimizer
    work = json.loads((whole / "work.json").read_text())["work"]
    assert (work["epochs"], work["batches"]) == (5, 10)


def test_suspended_run_ends_early_like_the_whole_one(patient_flags, whole, monkeypatch, capsys):
    set_fitness(monkeypatch)
    run = [*patient_flags, "--name", "parts"]
    assert finish(run, boundaries=4) == 5  # 15 boundaries, and two validations that begin anew
    assert_equal_runs(folder_of(run, "parts"), whole)
    shown = capsys.readouterr().out
    reason = "stopped early after epoch 5 of 6: 2 epochs without improvement (--patience 2)"
    assert shown.count(reason) == 1 and "\nbest: epoch 3 of 6  P " in shown
    assert "last.safetensors, best.safetensors\n" in shown


def test_time_limit_spans_resumes_and_validates_last_epoch(flags, monkeypatch, capsys):
    monkeypatch.setattr(StageTimer, "total", lambda timer: 1000.0)  # of each epoch
    run = [*flags, "--time", "0.5", "--noval", "--name", "timed"]
    assert finish(run, boundaries=3) == 2  # 2 + 2 batches and a validation
    folder = folder_of(run, "timed")
    first, second = rows(folder)
    validated = [name for name in first if name.startswith(("metrics/", "val/"))]
    assert len(validated) == 7
    for name in first:
        assert (first[name] == "") == (name in validated) and second[name] != ""
    lines = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
    assert [line["val/box_loss"] is None for line in lines] == [True, False]
    assert load_checkpoint(folder / "weights" / "best.safetensors").header.epoch == 2
    shown = capsys.readouterr().out
    assert "stopped early after epoch 2 of 5: --time 0.5: reached the limit of 0.5 hours" in shown
    assert "\nbest: epoch 2 of 5  P " in shown
    with pytest.raises(UserError, match="finished; --patience or --time has ended it"):
        start([*run, "--resume", str(folder)])
    start([*run, "--resume", str(folder), "--time", "0.6"])
    found = [row["metrics/recall"] != "" for row in rows(folder)]
    assert found == [False, True, True]  # 3,000 s are 0.6 h and more
    work = json.loads((folder / "work.json").read_text())["work"]
    assert work["validation"]["every"] == 3


def test_nosave_keeps_last_weights_and_noplots_no_image(flags, monkeypatch, capsys):
    for name in PLOTS:
        monkeypatch.setattr(outputs, name, die)
    monkeypatch.setattr(task_reports, "BOXES", task_reports.BOXES._replace(plot=die))
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # an import of it fails
    set_fitness(monkeypatch, (0.5, 0.1))
    run = [*flags, "--epochs", "2", "--nosave", "--noplots", "--name", "bare"]
    with pytest.raises(Suspended):
        start(run, StopAt(BOUNDARIES + 1))
    folder = folder_of(run, "bare")
    assert weights(folder) == ["last", "state-00000002", "state-00000003"]
    start([*run, "--resume", "auto"])
    assert weights(folder) == ["last"]
    assert not [path for path in folder.iterdir() if path.suffix in (".jpg", ".png")]
    assert json.loads((folder / "work.json").read_text())["work"]["plotted_batches"] == 0
    shown = capsys.readouterr().out
    assert "epoch 1 was the best, but its weights were not kept" in shown
    assert "plots in" not in shown and "best.safetensors" not in shown
    (folder / "work.json").unlink()  # killed just before its end
    start([*run, "--resume", "auto"])
    assert weights(folder) == ["last"] and (folder / "work.json").exists()
    with pytest.raises(UserError, match="is already finished"):
        start([*run, "--resume", str(folder)])
