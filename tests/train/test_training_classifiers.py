"""A classifier is trained, stopped, resumed and validated by the same code as a detector."""

import csv

import numpy as np
import pytest

from duet.backend import nn
from duet.models.detector import Detector
from duet.models.evaluation import validation
from duet.models.graph import read_model_yaml
from duet.models.training.start import build_model
from duet.utils.cli.train_config import TrainConfig, read_train_flags
from duet.utils.cli.val_config import parse_val_flags
from duet.utils.data.sources.dataset import load_dataset
from duet.utils.data.sources.splits import load_split
from duet.utils.errors import UserError
from duet.utils.processes.suspend import Suspended
from duet.utils.processes.world import ALONE
from duet.utils.tasks.table import DETECTION, TASKS
from duet.utils.weights.checkpoint import Checkpoint, load_checkpoint
from duet.utils.weights.load import load_weights
from tests.equal_runs import assert_equal_runs
from tests.shared_files import shared_path
from tests.small import RESULT_COLUMNS
from tests.small_classes import CLASS_NAMES, write_class_folders, write_tiny_classifier
from tests.tiny_weights import header_of
from tests.train.short_runs import StopAt, start

COLUMNS = [
    "epoch", "train/cls_loss", "metrics/accuracy_top1", "metrics/accuracy_top5", "val/cls_loss",
    *RESULT_COLUMNS[11:],
]  # fmt: skip


@pytest.fixture(scope="module")
def flags(tmp_path_factory):
    folder = tmp_path_factory.mktemp("classes")
    data = write_class_folders(folder / "colours")
    return [
        "--data", str(data), "--cfg", str(write_tiny_classifier(folder)), "--img", "32",
        "--batch", "4", "--workers", "0", "--device", "cpu", "--epochs", "2", "--noplots",
        "--project", str(folder), "--dropout", "0.4",
    ]  # fmt: skip


@pytest.fixture(scope="module")
def whole(flags):
    """The folder of a run without interruption."""
    return start([*flags, "--name", "whole"])


def rows_of(folder):
    with open(folder / "results.csv", newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_results_have_the_columns_of_a_classifier(whole):
    rows = rows_of(whole)
    assert len(rows) == 2 and list(rows[0]) == COLUMNS
    assert all(float(row["train/cls_loss"]) > 0 for row in rows)
    assert all(float(row["metrics/accuracy_top5"]) == 1 for row in rows)  # of three classes
    header = load_checkpoint(whole / "weights" / "best.safetensors").header
    best = max(float(row["metrics/accuracy_top1"]) for row in rows)
    assert header.best_fitness == pytest.approx(best, abs=1e-5)  # six digits in the file
    assert header.class_names == CLASS_NAMES


def test_defaults_are_those_of_the_task(whole):
    header = load_checkpoint(whole / "weights" / "last.safetensors").header
    settings = header.settings
    assert (settings["optimizer"], settings["label_smoothing"]) == ("Adam", 0.1)
    assert (header.hyperparameters["lr0"], header.hyperparameters["weight_decay"]) == (1e-3, 5e-5)
    config = TrainConfig(**TASKS["classify"].completed(*read_train_flags([])))
    assert (config.image_size, config.batch_size) == (224, 64)


def test_a_run_that_was_stopped_ends_as_the_uninterrupted_one(flags, whole, tmp_path):
    with pytest.raises(Suspended):
        start([*flags, "--project", str(tmp_path)], StopAt(4))  # in the validation
    start([*flags, "--project", str(tmp_path), "--resume"])
    assert_equal_runs(tmp_path / "exp", whole)


def test_weights_are_validated_with_table_and_plots(flags, whole, tmp_path, capsys):
    weights = whole / "weights" / "last.safetensors"
    for name, extra in (("plain", []), ("twice", ["--augment"])):
        config = parse_val_flags([
            "--data", flags[1], "--weights", str(weights), "--img", "32", "--batch-size", "4",
            "--device", "cpu", "--workers", "0", "--project", str(tmp_path), "--name", name, *extra,
        ])  # fmt: skip
        dataset = load_dataset(config.data)
        samples = load_split(dataset, "val")
        loaded = [load_weights(weights)]
        validation.run_validation(config, dataset.class_names, samples, loaded, ALONE)
        told = capsys.readouterr().out
        assert [line.split()[0] for line in told.splitlines()[:2]] == ["class", "all"]
        assert (tmp_path / name / "confusion_matrix.png").exists()


def test_weights_of_a_detector_give_a_classifier_its_backbone(flags, tmp_path, caplog):
    detector = shared_path("weights/coco-yolov5n-v6.pt")
    with caplog.at_level("INFO"):
        folder = start([
            *flags, "--cfg", "", "--weights", str(detector), "--task", "classify", "--epochs", "1",
            "--project", str(tmp_path), "--img", "64",
        ])  # fmt: skip
    lines = [record.message for record in caplog.records]
    # 186 tensors of layers 0 to 8; the head's are 8.
    assert "transferred 186/194 tensors" in lines
    left = [line for line in lines if line.startswith("  not transferred: ")]
    assert len(left) == 8 and all("model.9." in line for line in left)
    header = load_checkpoint(folder / "weights" / "last.safetensors").header
    assert header.model["head"] == [[-1, 1, "Classify", ["nc"]]] and header.model["nc"] == 3


def test_weights_of_a_classifier_give_a_detector_its_backbone(tmp_path):
    classifier = Detector(read_model_yaml("models/yolov5n-cls.yaml", 3))
    classifier.initialize(seed=1)
    arrays = nn.state_arrays(classifier)
    weights = Checkpoint(header_of(classifier, CLASS_NAMES), arrays, arrays, {})
    values = read_train_flags(["--weights", "F", "--task", "detect"])[0]
    model = build_model(TrainConfig(**values), weights, ("a", "b"))
    assert model.head.task is DETECTION and len(model.spec.layers) == 25
    found = nn.state_arrays(model)
    for name, array in arrays.items():
        if not name.startswith("model.9."):
            np.testing.assert_array_equal(found[name], array)


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["--quad"], "--quad: a combination of four images would have several classes; leave"),
        (["--rect"], "--rect: classification images are always square"),
        (["--noautoanchor"], "--noautoanchor: classifiers have no anchors"),
        (["--bbox_iou_optim"], "--bbox_iou_optim: the classification loss has no boxes"),
        (["--dropout", "1"], "--dropout 1; accepted: a number from 0 to below 1"),
        (["--cutoff", "9"], "--cutoff 9; the model has 3 layers"),
        (["--mask-ratio", "2"], "--mask-ratio applies only to the task segment"),
    ],
)
def test_flags_that_mean_nothing_to_a_classifier_are_refused(flags, tmp_path, extra, message):
    with pytest.raises(UserError, match=message):
        start([*flags, "--project", str(tmp_path), *extra])
