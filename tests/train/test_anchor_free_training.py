"""The anchor-free head is trained, validated, suspended and resumed with the flags of a recipe."""

import csv
import json

import numpy as np
import pytest

from duet.backend import autograd
from duet.models.graph import read_model_yaml
from duet.utils.errors import UserError
from duet.utils.processes.suspend import Suspended
from duet.utils.tasks.find import adopted, task_of_model
from duet.utils.tasks.table import ANCHOR_FREE, DETECTION
from duet.utils.weights.checkpoint import load_checkpoint
from tests.equal_runs import assert_equal_runs
from tests.shared_files import shared_path
from tests.small import write_small_dataset, write_tiny_anchor_free
from tests.train.short_runs import StopAt, start

COLUMNS = [
    "epoch", "train/box_loss", "train/cls_loss", "train/dfl_loss", "metrics/precision",
    "metrics/recall", "metrics/mAP_0.5", "metrics/mAP_0.5:0.95", "val/box_loss", "val/cls_loss",
    "val/dfl_loss", "x/lr0", "x/lr1", "x/lr2",
]  # fmt: skip


@pytest.fixture(scope="module")
def flags(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    return [
        "--data", str(write_small_dataset(folder)), "--cfg", str(write_tiny_anchor_free(folder)),
        "--img", "64", "--batch", "4", "--workers", "0", "--device", "cpu", "--epochs", "2",
        "--project", str(folder), "--noplots",
    ]  # fmt: skip


@pytest.fixture(scope="module")
def whole(flags):
    """The folder of a run without interruption."""
    return start([*flags, "--name", "whole"])


def losses_of(folder):
    return np.array(json.loads((folder / "work.json").read_text())["losses"])


def test_results_have_columns_of_the_heads_losses(whole):
    with open(whole / "results.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 and list(rows[0])[: len(COLUMNS)] == COLUMNS
    assert losses_of(whole).shape == (6, 3) and (losses_of(whole) > 0).all()


def test_a_run_that_was_suspended_ends_as_the_uninterrupted_one(flags, whole, tmp_path):
    with pytest.raises(Suspended):
        start([*flags, "--project", str(tmp_path)], StopAt(4))  # in the validation
    start([*flags, "--project", str(tmp_path), "--resume"])
    assert_equal_runs(tmp_path / "exp", whole)


@pytest.mark.parametrize(
    "recipe",
    [
        "--multi_tensor_optimizer --micro-batch 1 --multi-scale --single-cls",
        "--quad --freeze 2 --bbox_iou_optim --override dfl=1.0",
    ],
)
def test_it_is_trained_with_the_flags_of_a_recipe(flags, tmp_path, recipe):
    folder = start([*flags, "--project", str(tmp_path), "--epochs", "1", *recipe.split()])
    losses = losses_of(folder)
    assert losses.shape == (3, 3) and np.isfinite(losses).all() and (losses > 0).all()


def test_a_compiled_loss_trains_alike(flags, whole, tmp_path):
    if problem := getattr(autograd, "compile_problem", lambda device: "none")("cpu"):
        pytest.skip(problem)
    folder = start([*flags, "--project", str(tmp_path), "--compile"])
    # Six steps of a compiled network, whose sums have another order.
    np.testing.assert_allclose(losses_of(folder)[:3], losses_of(whole)[:3], rtol=1e-3)


@pytest.mark.parametrize(
    ("flag", "reason"),
    [
        ("--noautoanchor", "anchor-free models have no anchors"),
        ("--autobalance", "no objectness loss to balance"),
        ("--label-smoothing=0.1", "train class scores on box quality instead"),
    ],
)
def test_flags_without_a_meaning_are_refused_with_the_reason(flags, flag, reason):
    with pytest.raises(UserError, match=f"{flag.partition('=')[0]}: .*{reason}; leave it out"):
        start([*flags, flag])


def test_backbone_and_neck_of_anchor_based_weights_are_taken(caplog):
    from duet.models.detector import Detector
    from duet.models.training.start import transfer_weights
    from duet.utils.weights.load import load_weights

    weights = load_weights(shared_path("weights/coco-yolov5n-v6.pt"))
    model = Detector(read_model_yaml("yolov5nu.yaml", 3))
    with caplog.at_level("INFO", "train"):
        transfer_weights(model, weights, ("a", "b", "c"), keep_anchors=True)
    assert "transferred 342/427 tensors" in caplog.text  # all but the head's


def test_class_rows_are_taken_over_by_name(flags, whole, tmp_path):
    weights = whole / "weights" / "last.safetensors"
    given = load_checkpoint(weights)
    start([*flags, "--weights", str(weights), "--remap-classes", "--single-cls", "--epochs", "1",
           "--project", str(tmp_path), "--override", "lr0=1e-9", "warmup_bias_lr=0"])  # fmt: skip
    found = load_checkpoint(tmp_path / "exp" / "weights" / "last.safetensors").ema
    for level in (0, 1):
        for branch, rows in (("cv2", 64), ("cv3", 1)):
            name = f"model.4.{branch}.{level}.2.weight"
            assert len(found[name]) == rows
            if branch == "cv2":
                np.testing.assert_allclose(found[name], given.ema[name], rtol=0, atol=1e-6)


def test_the_task_decides_on_the_head_of_given_layers():
    free, anchored = (read_model_yaml(f"yolov5n{end}.yaml").document for end in ("u", ""))
    assert task_of_model(free) is ANCHOR_FREE
    assert adopted(ANCHOR_FREE, anchored) == free
    assert adopted(DETECTION, free) == anchored
    with pytest.raises(UserError, match="the model has no anchors.* omit --task"):
        adopted(DETECTION, read_model_yaml("yolov8n.yaml").document)
