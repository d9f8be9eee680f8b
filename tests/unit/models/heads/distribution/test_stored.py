"""The anchor-free models against outputs stored from the public package.

Tolerances: float32 sums of a few hundred products in another order, over 24 layers: 2e-5 of the
largest value for raw maps, as for the anchor head. Boxes and scores are compared with those of
float64, from which the stored float32 ones are up to 1e-3 pixels and 3e-6 away.
"""

import json
from functools import cache

import numpy as np
import pytest

from duet.backend import autograd, nn, ops
from duet.models.detector import Detector, count_parameters
from duet.models.graph import count_gflops, plan_layers, read_model_yaml
from duet.models.inference.predictors import Augmented
from duet.utils.files.model_yamls import shipped_model
from duet.utils.geometry.detections import SuppressionSettings
from duet.utils.project import PROJECT
from tests.environments import shared_path
from tests.golden_models import (
    assert_near,
    drawn_input,
    drawn_model,
    info,
    numbers_by_layer,
    stored,
)

FOLDER = "anchor_free/models"
NAMES = [*(f"yolov5{size}{p}u" for p in ("", "6") for size in "nsmlx"),
         *(f"yolov8{size}" for size in "nsmlx")]  # fmt: skip
MODELS = ("yolov5nu_w0125", "yolov5n6u_w0125", "yolov8n_w0125", "yolov5nu", "yolov8n")
DEEP = ("yolov5mu", "yolov5lu", "yolov5xu", "yolov5m6u", "yolov5l6u", "yolov5x6u", "yolov8m",
        "yolov8l")  # fmt: skip
RAW_TOLERANCE = 2e-5
PIXELS, SCORES = 2e-3, 6e-6


@cache
def golden(name):
    return stored(f"{FOLDER}/{name}")


def model_of(name):
    case = info(FOLDER)[name]
    path = shipped_model(name.partition("_")[0]).relative_to(PROJECT / "models")
    return drawn_model(str(path), case["gain"], classes=case["nc"], width=case["width_multiple"])


def images_of(name):
    return ops.tensor(drawn_input(info(FOLDER)[name]["input"]))


def decoded_of(model, images):
    with autograd.no_grad():
        return ops.to_numpy(model.decode(model(images)))


def assert_decoded(found, wanted, loosened=1):
    """found (B, N, 5 + C); wanted (B, 4 + C, N), without the 1 for objectness."""
    assert (found[..., 4] == 1).all()
    found = np.delete(found, 4, axis=2).transpose(0, 2, 1)
    np.testing.assert_allclose(found[:, :4], wanted[:, :4], rtol=0, atol=PIXELS * loosened)
    np.testing.assert_allclose(found[:, 4:], wanted[:, 4:], rtol=0, atol=SCORES * loosened)


@pytest.mark.parametrize("name", NAMES)
def test_yaml_matches_public_state_parameters_and_gflops(name):
    case = json.loads(shared_path(f"golden/{FOLDER}/scales.json").read_text())[name]
    spec = read_model_yaml(str(shipped_model(name)))
    plans = plan_layers(spec)
    wanted = numbers_by_layer(case["state"])
    assert {i: plan.numbers for i, plan in enumerate(plans) if plan.numbers} == wanted
    trained = sum(cost.weights + cost.biases for plan in plans for _, cost in plan.costs)
    channels = sum(cost.normalized for plan in plans for _, cost in plan.costs)
    assert trained + 2 * channels == case["trainable_parameters"]
    assert spec.layers and [plans[-1].stride] == case["stride"][:1]
    # The published figure also counts the 16 distances of each edge as a convolution.
    distances = 2e-9 * 4 * 16 * sum((640 / stride) ** 2 for stride in case["stride"])
    folded = count_gflops(plans, folded=True) + distances
    assert folded == pytest.approx(case["fused_gflops_640"], rel=1e-9)


@pytest.mark.parametrize("name", ["yolov5nu", "yolov5n6u", "yolov8n"])
def test_state_matches_public_names_shapes_and_order(name):
    case = json.loads(shared_path(f"golden/{FOLDER}/scales.json").read_text())[name]
    model = Detector(read_model_yaml(str(shipped_model(name))))
    shapes = {key: list(x.shape) for key, x in nn.state_tensors(model).items()}
    assert list(shapes.items()) == list(case["state"].items())
    assert count_parameters(model) == case["trainable_parameters"]


@pytest.mark.parametrize("name", MODELS)
def test_evaluation_matches_stored_maps_boxes_and_scores(name):
    model, wanted = model_of(name), golden(name)
    with autograd.no_grad():
        *layers, raw = model.run_layers(images_of(name))
        decoded = ops.to_numpy(model.decode(raw))
    for level, found in enumerate(raw):
        assert_near(ops.to_numpy(found), wanted[f"raw{level}"], RAW_TOLERANCE)
    norms = [np.sqrt((ops.to_numpy(x).astype(np.float64) ** 2).sum()) for x in layers]
    np.testing.assert_allclose(norms, wanted["layer_mean_std_l2"][: len(norms), 2], rtol=2e-5)
    assert_decoded(decoded, wanted["decoded"])
    assert_decoded(decoded[:, ::8], wanted["decoded_fp64_every8"])


@pytest.mark.parametrize("name", DEEP)
def test_larger_sizes_match_stored_rows_with_own_depth(name):
    name = f"{name}_w0125_own_depth"
    model, wanted = model_of(name), golden(name)
    found = decoded_of(model, images_of(name))
    assert_decoded(found, wanted["decoded"])


@pytest.mark.parametrize("name", MODELS[:3])
def test_test_time_augmentation_matches_stored_rows(name):
    model = Augmented(model_of(name))
    with autograd.no_grad():
        (rows,) = model.decode_above(model(images_of(name)[:1]), SuppressionSettings(0.0))
    wanted = golden(name)["augment_every4"][0].T
    assert len(rows[::4]) == len(wanted)
    assert_decoded(rows[None, ::4], wanted.T[None], loosened=3)


@pytest.mark.parametrize("classes", [1, 3, 5, 80, 120])
@pytest.mark.parametrize("name", ["yolov5nu", "yolov8n"])
def test_initial_biases_match_stored_values(name, classes):
    levels = json.loads(shared_path(f"golden/{FOLDER}/initialisation.json").read_text())
    model = Detector(read_model_yaml(str(shipped_model(name)), classes))
    model.initialize(0)
    biases = {key.removeprefix(model.head_name): x for key, x in nn.state_arrays(model).items()}
    for level, wanted in enumerate(levels[f"{name}_nc{classes}"]):
        edges, scores = biases[f"cv2.{level}.2.bias"], biases[f"cv3.{level}.2.bias"]
        assert len(edges) == wanted["box_bias_count"] and set(edges) == {wanted["box_bias"]}
        assert len(scores) == wanted["class_bias_count"]
        np.testing.assert_allclose(scores, wanted["class_bias"], rtol=1e-6)


def test_dfl_bin_weights_are_neither_drawn_nor_trained():
    model = Detector(read_model_yaml(str(shipped_model("yolov8n")), 3))
    model.initialize(0)
    name = "model.22.dfl.conv.weight"
    np.testing.assert_array_equal(nn.state_arrays(model)[name].ravel(), np.arange(16))
    assert name not in dict(nn.named_parameters(model))
