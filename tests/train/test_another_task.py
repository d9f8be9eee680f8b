"""A task with other losses and figures is trained, saved, resumed and validated as detection is."""

import csv
import json
import re

import pytest

import train
from duet.models.evaluation import validation
from duet.models.training import outputs
from duet.utils.cli.hyperparameters import read_hyperparameters
from duet.utils.cli.train_config import parse_train_flags
from duet.utils.cli.val_config import parse_val_flags
from duet.utils.data.sources.dataset import load_dataset
from duet.utils.data.sources.splits import load_split
from duet.utils.processes.suspend import StopRequests, Suspended
from duet.utils.processes.world import ALONE
from duet.utils.weights.checkpoint import load_checkpoint
from duet.utils.weights.load import load_weights
from tests import presence_head
from tests.small import RESULT_COLUMNS
from tests.train.short_runs import StopAt, assert_equal_runs, short_flags, start

EPOCHS, TRAIN_BATCHES = 2, 6
COLUMNS = [
    "epoch", "train/pres_loss", "train/num_loss", "metrics/accuracy",
    "val/pres_loss", "val/num_loss", *RESULT_COLUMNS[11:],
]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _registered():
    """The head is there, and nothing is drawn but by it and of its results."""
    with pytest.MonkeyPatch.context() as patch:
        presence_head.register(patch)
        for name in ("plot_batch", "plot_labels"):
            patch.setattr(outputs, name, lambda *arguments: None)
        yield


@pytest.fixture(scope="module")
def flags(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    cfg = folder / "presence.yaml"
    cfg.write_text(presence_head.YAML)
    flags = short_flags(folder, "--batch", 2, "--epochs", EPOCHS, cfg=cfg)
    return [flag for flag in flags if flag != "--noplots"]


@pytest.fixture(scope="module")
def whole(flags):
    """The folder of a run without interruption."""
    return start([*flags, "--name", "whole"])


def test_run_files_use_the_names_of_the_head(whole):
    with open(whole / "results.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == EPOCHS and list(rows[0]) == COLUMNS
    assert all(float(row[name]) > 0 for row in rows for name in COLUMNS[1:6])
    work = json.loads((whole / "work.json").read_text())
    assert [len(losses) for losses in work["losses"]] == [2] * (EPOCHS * TRAIN_BATCHES)
    names = {path.name for path in whole.iterdir()}
    assert names >= {"accuracy.txt", "results.png"} and "PR_curve.png" not in names
    header = load_checkpoint(whole / "weights" / "best.safetensors").header
    assert header.progress["loss_names"] == ["presence", "count"]
    assert header.best_fitness == pytest.approx(max(float(x["metrics/accuracy"]) for x in rows))


def test_epoch_rows_use_the_names_of_the_head(flags, tmp_path, caplog, capsys):
    config = parse_train_flags([*flags, "--project", str(tmp_path), "--epochs", "1"])
    with caplog.at_level("INFO"):
        train.run(config, read_hyperparameters(config.hyp), None, StopRequests())
    number = r"\d+\.\d{4}"
    lines = [record.message for record in caplog.records]
    row = next(index for index, line in enumerate(lines) if line.startswith("    1/1 "))
    assert lines[row - 1].split() == ["epoch", "pres", "num", "acc", "seconds", "img/s", "wait"]
    assert re.match(r"    1/1( +\d+\.\d{3}){3} +\d+\.\d", lines[row])
    assert re.search(rf"^accuracy {number}$", capsys.readouterr().out, re.MULTILINE)


def test_stopped_run_ends_like_the_uninterrupted_one(flags, whole, tmp_path):
    with pytest.raises(Suspended):
        start([*flags, "--project", str(tmp_path)], StopAt(TRAIN_BATCHES + 1))
    start([*flags, "--project", str(tmp_path), "--resume"])
    assert_equal_runs(tmp_path / "exp", whole)


def test_validation_uses_the_table_and_plot_of_the_head(flags, whole, tmp_path, capsys):
    weights = whole / "weights" / "last.safetensors"
    config = parse_val_flags([
        "--data", flags[1], "--weights", str(weights), "--img", "64", "--batch-size", "4",
        "--device", "cpu", "--workers", "0", "--project", str(tmp_path),
    ])  # fmt: skip
    dataset = load_dataset(config.data)
    samples = load_split(dataset, "val")
    validation.run_validation(config, dataset, samples, [load_weights(weights)], ALONE)
    (reported,) = tmp_path.glob("*/accuracy.txt")
    assert reported.read_text() in capsys.readouterr().out
