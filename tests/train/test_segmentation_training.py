"""Masks are trained, validated, suspended and resumed as boxes are, with the flags of a recipe."""

import csv
import json

import numpy as np
import pytest

from duet.models.heads.mask.head import MaskHead
from duet.utils.processes.suspend import Suspended
from duet.utils.weights.checkpoint import load_checkpoint
from tests.equal_runs import assert_equal_runs
from tests.small import write_outlined_dataset, write_tiny_segmenter
from tests.train.short_runs import StopAt, start

PUBLIC_COLUMNS = [
    "epoch", "train/box_loss", "train/seg_loss", "train/obj_loss", "train/cls_loss",
    "metrics/precision(B)", "metrics/recall(B)", "metrics/mAP_0.5(B)", "metrics/mAP_0.5:0.95(B)",
    "metrics/precision(M)", "metrics/recall(M)", "metrics/mAP_0.5(M)", "metrics/mAP_0.5:0.95(M)",
    "val/box_loss", "val/seg_loss", "val/obj_loss", "val/cls_loss", "x/lr0", "x/lr1", "x/lr2",
]  # fmt: skip


@pytest.fixture(scope="module")
def flags(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    data = write_outlined_dataset(folder)
    return [
        "--data", str(data), "--cfg", str(write_tiny_segmenter(folder)), "--img", "64",
        "--batch", "4", "--workers", "0", "--device", "cpu", "--epochs", "2",
        "--project", str(folder), "--noplots", "--noautoanchor",
    ]  # fmt: skip


@pytest.fixture(scope="module")
def whole(flags):
    """The folder of a run without interruption."""
    return start([*flags, "--name", "whole"])


def losses_of(folder):
    return np.array(json.loads((folder / "work.json").read_text())["losses"])


def test_results_have_the_public_columns(whole):
    with open(whole / "results.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 and list(rows[0])[: len(PUBLIC_COLUMNS)] == PUBLIC_COLUMNS
    assert all(float(row["val/seg_loss"]) > 0 for row in rows)
    assert losses_of(whole).shape == (6, 4) and (losses_of(whole) > 0).all()
    header = load_checkpoint(whole / "weights" / "last.safetensors").header
    assert header.progress["loss_names"] == list(MaskHead.loss_names)


def test_a_run_that_was_suspended_ends_as_the_uninterrupted_one(flags, whole, tmp_path):
    with pytest.raises(Suspended):
        start([*flags, "--project", str(tmp_path)], StopAt(4))  # in the validation
    start([*flags, "--project", str(tmp_path), "--resume"])
    assert_equal_runs(tmp_path / "exp", whole)


@pytest.mark.parametrize(
    "recipe",
    [
        "--multi_tensor_optimizer --micro-batch 1 --multi-scale --autobalance --single-cls",
        "--quad --no-overlap --mask-ratio 2 --freeze 2 --label-smoothing 0.1 --bbox_iou_optim",
    ],
)
def test_masks_are_trained_with_the_flags_of_a_recipe(flags, tmp_path, recipe):
    folder = start([*flags, "--project", str(tmp_path), "--epochs", "1", *recipe.split()])
    losses = losses_of(folder)
    assert losses.shape == (3, 4) and np.isfinite(losses).all()
    assert (losses[:, :3] > 0).all()


def test_coefficients_of_weights_are_taken_over_for_other_classes(flags, whole, tmp_path):
    weights = whole / "weights" / "last.safetensors"
    given = load_checkpoint(weights).ema
    start([*flags, "--weights", str(weights), "--remap-classes", "--single-cls", "--epochs", "1",
           "--project", str(tmp_path), "--override", "lr0=1e-9", "warmup_bias_lr=0"])  # fmt: skip
    found = load_checkpoint(tmp_path / "exp" / "weights" / "last.safetensors").ema
    for level in (0, 1):
        name = f"model.4.m.{level}.weight"
        own, old = (x[name].reshape(3, -1, 16) for x in (found, given))
        assert own.shape[1:] == (12, 16) and old.shape[1:] == (16, 16)
        np.testing.assert_allclose(own[:, :5], old[:, :5], rtol=0, atol=1e-6)
        np.testing.assert_allclose(own[:, 6:], old[:, 10:], rtol=0, atol=1e-6)
