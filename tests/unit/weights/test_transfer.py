"""Taking weights over into another model: by name and shape, and class by class."""

import dataclasses
import logging

import numpy as np
import pytest

from duet.backend import autograd, nn, ops
from duet.models.blocks.variants import SPP, Focus
from duet.models.blocks.yolov5 import SPPF, Conv
from duet.models.training.start import build_model
from duet.utils.cli.hyperparameters import read_hyperparameters
from duet.utils.cli.train_config import parse_train_flags
from duet.utils.errors import UserError
from duet.utils.tasks import ClassRows
from duet.utils.weights.load import load_weights
from duet.utils.weights.transfer import match_classes, remap_rows, transfer_arrays
from tests.environments import shared_path

BOXES = ClassRows(("m.",), before=5)
CLASSES = match_classes(("dog", "cow", "cat"), ("cat", "dog"))
BCCD = ("RBC", "WBC", "Platelets")


def test_fitting_arrays_are_transferred_and_others_named():
    state = {"a": np.zeros(2), "b": np.zeros((2, 2)), "c": np.zeros(1), "d": np.zeros(1)}
    arrays = {"a": np.ones(2), "b": np.ones(4), "d": np.ones(1), "other": np.ones(1)}
    transfer = transfer_arrays(state, arrays, kept=("d",))
    assert transfer.taken == 1 and set(transfer.state) == set(state)
    assert transfer.state["a"].tolist() == [1, 1] and transfer.state["b"].sum() == 0
    assert transfer.left == (
        "b: shape [4] in the weights, [2, 2] in the model",
        "c: not in the weights",
        "d: kept from the model YAML",
    )


def test_classes_are_paired_by_name():
    classes = match_classes(("dog", "cow", "cat"), ("cat", "dog", "cat"))
    assert classes.new_index.tolist() == [0, 2] and classes.old_index.tolist() == [1, 0]
    assert match_classes(("x",), ("y",)).new_index.tolist() == []
    with pytest.raises(UserError, match="the weights have no class names"):
        match_classes(("x",), ())


@pytest.mark.parametrize(
    ("rows", "old", "wanted"),
    [  # of 2 anchors with 5 + 2 outputs, of one with 5 + 2 + 2 coefficients, of a classifier
        (BOXES, (14, 1), [0, 1, 2, 3, 4, 6, -1, 5, 7, 8, 9, 10, 11, 13, -1, 12]),
        (ClassRows(("m.",), before=5, after=2), (9, 1), [0, 1, 2, 3, 4, 6, -1, 5, 7, 8]),
        (ClassRows(("linear.",)), (2, 2), [2, 3, -1, -1, 0, 1]),
    ],
)
def test_rows_move_with_their_class(rows, old, wanted):
    given = np.arange(np.prod(old), dtype=np.float32).reshape(old)
    own = np.full((len(wanted) // old[1], old[1]), -1, np.float32)
    assert remap_rows(own, given, rows, CLASSES).ravel().tolist() == wanted


@pytest.mark.parametrize("shapes", [((16, 2), (14, 3)), ((24, 1), (14, 1))])
def test_rows_of_other_channels_or_anchors_do_not_move(shapes):
    assert remap_rows(*map(np.zeros, shapes), BOXES, CLASSES) is None


def start_of_coco():
    return load_weights(shared_path("weights/coco-yolov5n-v6.pt"))


def build(flags, start, names):
    config = parse_train_flags(["--weights", "coco-yolov5n-v6.pt", *flags])
    hyp = read_hyperparameters(config.hyp)
    return nn.state_arrays(build_model(config, hyp, start, names))


CFG = ["--cfg", "models/yolov5n.yaml"]
FEWER = "transferred 343/349 tensors; the weights were trained on other classes: the head is init"
AS_MANY = (
    "transferred 349/349 tensors; the weights were trained on other classes: the number is equal, "
    "so the head keeps their"
)


@pytest.mark.parametrize(
    ("flags", "names", "report", "kept"),
    [
        ([], BCCD, FEWER, "model.9.cv1.conv.weight"),
        (CFG, BCCD, FEWER, "model.9.cv1.conv.weight"),
        (CFG, None, AS_MANY, "model.24.m.0.weight"),  # None: the first of 80 has another name
    ],
)
def test_other_classes_transfer_everything_but_the_head(caplog, flags, names, report, kept):
    start = start_of_coco()
    names = names or ("platelet", *start.header.class_names[1:])
    with caplog.at_level(logging.INFO, logger="train"):
        state = build(flags, start, names)
    (reported,) = (line for line in caplog.messages if "transferred" in line)
    assert reported.startswith(report) and "--remap-classes" in reported
    assert np.array_equal(state[kept], start.ema[kept])


def test_explicit_yaml_keeps_its_anchors(tmp_path, caplog):
    start = start_of_coco()
    moved = {**start.ema, "model.24.anchors": start.ema["model.24.anchors"] + 1}
    start = dataclasses.replace(start, ema=moved)
    with caplog.at_level(logging.INFO, logger="train"):
        kept = build(CFG, start, start.header.class_names)
    assert "transferred 348/349 tensors" in caplog.messages
    assert not any("--remap-classes" in line for line in caplog.messages)
    assert kept["model.24.anchors"][0, 0].tolist() == [1.25, 1.625]
    taken = build([], start, start.header.class_names)
    assert np.array_equal(taken["model.24.anchors"], moved["model.24.anchors"])


def test_remapped_classes_keep_rows_and_new_ones_are_drawn(caplog):
    start, names = start_of_coco(), ("zebra", "platelet", "person")
    with caplog.at_level(logging.INFO, logger="train"):
        state = build(["--remap-classes"], start, names)
    assert "2 of 3 classes matched by name; the others are initialized anew" in caplog.messages
    assert not any("--remap-classes" in line for line in caplog.messages)
    assert "transferred 349/349 tensors" in caplog.messages
    drawn = build([], start, names)
    for level in range(3):
        name = f"model.24.m.{level}.weight"
        new = state[name].reshape(3, 8, -1)
        old = start.ema[name].reshape(3, 85, -1)
        assert np.array_equal(new[:, :5], old[:, :5])
        assert np.array_equal(new[:, 5], old[:, 5 + start.header.class_names.index("zebra")])
        assert np.array_equal(new[:, 7], old[:, 5])
        assert np.array_equal(new[:, 6], drawn[name].reshape(3, 8, -1)[:, 6])


def test_state_dict_without_a_model_requires_one():
    start = start_of_coco()
    start = dataclasses.replace(start, header=dataclasses.replace(start.header, model={}))
    with pytest.raises(UserError, match="a plain state dict, which describes no model"):
        build([], start, BCCD)
    build(CFG, start, BCCD)


def run_block(module, x):
    with autograd.no_grad():
        return ops.to_numpy(nn.frozen_copy(module)(ops.tensor(x)))


def draw(module, seed):
    generator = np.random.default_rng(seed)
    state = {
        name: generator.uniform(0.5, 1.5, array.shape).astype(array.dtype) if array.ndim else array
        for name, array in nn.state_arrays(module).items()
    }
    nn.load_state_arrays(module, state)
    return state


def test_spp_equals_sppf_with_the_same_weights():
    x = np.random.default_rng(0).normal(size=(1, 8, 20, 20)).astype(np.float32)
    spp, sppf = SPP(8, 8, (5, 9, 13)), SPPF(8, 8, 5)
    nn.load_state_arrays(sppf, draw(spp, 1))
    # Poolings in a row see the same windows; only the order of float32 sums may differ.
    np.testing.assert_allclose(run_block(spp, x), run_block(sppf, x), rtol=1e-5, atol=1e-5)


def test_focus_equals_the_rearranged_six_pixel_stem():
    x = np.random.default_rng(0).normal(size=(2, 3, 8, 12)).astype(np.float32)
    focus, stem = Focus(3, 8, 3), Conv(3, 8, 6, 2, 2)
    state = {name.removeprefix("conv."): array for name, array in draw(focus, 2).items()}
    folded = state["conv.weight"].reshape(8, 2, 2, 3, 3, 3)  # out, column, row, in, H, W
    laid_out = folded.transpose(0, 3, 4, 2, 5, 1).reshape(8, 3, 6, 6)
    nn.load_state_arrays(stem, {**state, "conv.weight": laid_out})
    # 108 products a sum, in another order.
    np.testing.assert_allclose(run_block(focus, x), run_block(stem, x), rtol=1e-4, atol=1e-4)
