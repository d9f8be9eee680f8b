"""Public classifiers: described by their layers, since their files have no model YAML."""

from typing import Any

import numpy as np
import pytest

from duet.utils.errors import UserError
from duet.utils.weights.load import load_weights
from duet.utils.weights.yolov5 import unfold
from tests.foreign_files import module
from tests.unit.weights.foreign_classifier import Classifier


def test_a_classifier_is_described_by_its_layers(tmp_path):
    weights = load_weights(Classifier().write(tmp_path / "cls.pt"))
    assert weights.header.model == {
        "nc": 2,
        "depth_multiple": 1.0,
        "width_multiple": 1.0,
        "backbone": [[-1, 1, "Conv", [8, 6, 2, 2]], [-1, 2, "C3", [8]]],
        "head": [[-1, 1, "Classify", ["nc"]]],
    }
    assert weights.header.class_names == ("cat", "dog")
    assert weights.header.settings["stored_fitness"] == 0.75


def test_activation_shortcuts_and_groups_are_told_by_the_layers(tmp_path):
    changes: Any = {"activation": "ReLU", "shortcuts": (False,), "first": {"groups": 4}}
    document = load_weights(Classifier(**changes).write(tmp_path / "cls.pt")).header.model
    assert document["act"] == "ReLU"
    assert document["backbone"] == [[-1, 1, "Conv", [8, 6, 2, 2, 4]], [-1, 1, "C3", [8, False]]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mean": [0.5, 0.5, 0.5]}, r"normalizes images by \[\[0.5, 0.5, 0.5\].*are built here"),
        ({"steps": []}, "its transforms do not normalize images"),
        ({"eps": 1e-3}, "layer model.2.conv.bn has eps 0.001; 1e-05 is built here"),
        ({"linear": {}}, "no linear layer; those of v6.2 and later have one"),
        ({"shortcuts": (True, False)}, "a C3 of 2 bottlenecks, with and without shortcuts"),
        ({"inserted": [module("models.common.GhostConv", f=-1)]}, "layer 1 is 'GhostConv' from -1"),
        ({"inserted": [module("models.common.C3", f=[-1, 4])]}, r"layer 1 is 'C3' from \[-1, 4\]"),
        ({"first": {"stride": (2, 1)}}, r"its Conv2d has stride \(2, 1\); accepted: a number"),
        ({"first": {"dilation": (2, 2)}}, "a dilated convolution"),
    ],
)
def test_what_would_compute_something_else_is_refused(tmp_path, changes, message):
    path = Classifier(**changes).write(tmp_path / "cls.pt")
    with pytest.raises(UserError, match=f"cls.pt: .*{message}"):
        load_weights(path)


def test_a_folded_classifier_is_unfolded_by_the_eps_of_its_head():
    """With the running variance 1, the weight of BatchNorm undoes the root of 1 + eps."""
    ones = np.ones(4, np.float32)
    names = ("model.0.conv", "model.1.conv.conv")
    arrays = {f"{name}.{part}": ones for name in names for part in ("weight", "bias")}
    arrays["model.1.linear.weight"] = ones
    unfolded, fused = unfold(arrays)
    assert fused
    assert np.array_equal(unfolded["model.0.bn.weight"], ones * np.float32(np.sqrt(1.001)))
    assert np.array_equal(unfolded["model.1.conv.bn.weight"], ones * np.float32(np.sqrt(1.00001)))
