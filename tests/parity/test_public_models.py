"""The model YAMLs against figures and outputs stored from the public YOLOv5's models.

Of full size are only names, numbers and operations, which need no arrays; outputs are those of an
eighth of the width. Tolerance of outputs: 1e-5 of the largest value, as in test_stored_outputs.py,
doubled for models that are deeper.
"""

import json
import math

import numpy as np
import pytest
import yaml

from duet.backend import autograd, nn, ops
from duet.models.detector import Detector
from duet.models.graph import count_gflops, parse_model, plan_layers, read_model_yaml
from duet.models.stored import fold_batch_norm
from duet.utils.project import PROJECT
from tests.environments import shared_path
from tests.golden_models import drawn_input, drawn_model, info, stored

NETWORK_TOLERANCE = 2e-5
MODELS = sorted((PROJECT / "models").rglob("*.yaml"))
# Models without anchors: tests/unit/models/heads/distribution/test_stored.py.
WITH_CELLS = [path for path in MODELS if "anchors:" in path.read_text(encoding="utf-8")]
DETECTORS = [path for path in WITH_CELLS if not path.stem.endswith("-seg")]
HUB = [path.stem for path in DETECTORS if path.parent.name == "hub"]
COMMON_DEPTH = 0.33  # of what is stored
# At that depth and width s6, m6, l6 and x6 are n6. Of them the deepest is stored as it is, too.
OWN_DEPTH = {"yolov5x6": 1.33}
SAME_AS_N6 = {"yolov5s6", "yolov5m6", "yolov5l6"}
# Names depend on layers, which the stored outputs see all of, and on their depths.
OF_ALL_DEPTHS = [
    PROJECT / "models" / name
    for name in ("yolov5m.yaml", "hub/yolov3-spp.yaml", "yolov5m-seg.yaml")
]


def public(file):
    with open(shared_path(f"golden/{file}.json"), encoding="utf-8") as opened:
        return json.load(opened)


def name_in_figures(path):
    folder = "segment/" if path.stem.endswith("-seg") else ""
    return folder + str(path.relative_to(PROJECT / "models"))


def test_every_public_model_is_shipped():
    assert set(public("config_state_shapes")) <= set(map(name_in_figures, WITH_CELLS))


@pytest.mark.parametrize("path", WITH_CELLS, ids=lambda path: path.stem)
def test_counts_gflops_strides_and_anchors_are_public(path):
    spec = read_model_yaml(path)
    plans, figures = plan_layers(spec), public("configs")[name_in_figures(path)]
    wanted = [0] * len(plans)
    for name, shape in public("config_state_shapes")[name_in_figures(path)].items():
        wanted[int(name.split(".")[1])] += math.prod(shape) if shape else 0
    assert [plan.numbers for plan in plans] == wanted
    trained = sum(cost.weights + cost.biases for plan in plans for _, cost in plan.costs)
    channels = sum(cost.normalized for plan in plans for _, cost in plan.costs)
    assert trained + 2 * channels == figures["params"]
    assert trained + channels == figures["params_fused"]
    assert count_gflops(plans) == pytest.approx(figures["gflops_640_thop"], rel=1e-9)
    folded = count_gflops(plans, folded=True)
    assert folded == pytest.approx(figures["gflops_640_thop_fused"], rel=1e-9)
    levels = plans[-1].costs[: len(figures["stride"])]
    assert [stride for stride, _ in levels] == figures["stride"]
    anchors = spec.layers[-1].args[1]
    if isinstance(anchors, int):
        assert anchors == figures["na"]
    else:
        assert list(map(list, anchors)) == figures["anchors_px"]


@pytest.mark.parametrize("path", OF_ALL_DEPTHS, ids=lambda path: path.stem)
def test_parameters_match_public_names_and_order(path):
    document = yaml.safe_load(path.read_text())
    narrow = Detector(parse_model({**document, "width_multiple": 0.0625}))
    shapes = public("config_state_shapes")[name_in_figures(path)]
    state = nn.state_arrays(narrow)
    assert list(state) == list(shapes)
    assert [array.ndim for array in state.values()] == list(map(len, shapes.values()))


def assert_near(found, wanted, tolerance=NETWORK_TOLERANCE):
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance * np.abs(wanted).max())


def outputs(model, images):
    with autograd.no_grad():
        raw = model(ops.tensor(images))
        return [ops.to_numpy(level) for level in raw], ops.to_numpy(model.decode(raw))


@pytest.mark.parametrize("name", sorted(set(HUB) - SAME_AS_N6))
def test_outputs_match_stored_values_plain_and_folded(name):
    key = f"{name}_own_depth" if name in OWN_DEPTH else name
    case, wanted = info("hub")[key], stored(f"hub/{key}")
    depth = OWN_DEPTH.get(name, COMMON_DEPTH)
    model = drawn_model(f"hub/{name}.yaml", case["gain"], depth=depth)
    state = nn.state_arrays(model)
    assert {name: list(array.shape) for name, array in state.items()} == case["state"]
    raw, decoded = outputs(model, drawn_input(case["input"]))
    for index, level in enumerate(raw):
        assert_near(level, wanted[f"raw{index}"])
    for columns in (np.s_[..., :2], np.s_[..., 2:4], np.s_[..., 4:]):
        assert_near(decoded[columns], wanted["decoded"][columns])
    assert model.head.strides == tuple(case["stride"])
    assert_near(state[f"{model.head_name}anchors"], np.array(case["anchors_grid"], np.float32))
    fold_batch_norm(model)
    assert not [name for name in nn.state_arrays(model) if ".bn." in name]
    folded = outputs(model, drawn_input(case["input"]))[1][:, ::8]
    for columns in (np.s_[..., :2], np.s_[..., 2:4], np.s_[..., 4:]):
        assert_near(folded[columns], wanted["fused_decoded_every8"][columns])


@pytest.mark.parametrize(("size", "key"), [(0.125, "w0125"), (0.25, "n")])
def test_mask_outputs_match_stored_rows_and_prototypes(size, key):
    case, wanted = info("segment")[key], stored(f"segment/model_{key}")
    model = drawn_model("yolov5n-seg.yaml", case["gain"], width=size)
    state = nn.state_arrays(model)
    assert {name: list(array.shape) for name, array in state.items()} == case["state"]
    *raw, _ = outputs(model, drawn_input(case["input"]))[0]
    for index, level in enumerate(raw):
        if f"raw{index}" in wanted:
            assert_near(level, wanted[f"raw{index}"])
    for _ in ("plain", "folded"):
        raw, decoded = outputs(model, drawn_input(case["input"]))
        assert_near(raw[-1], wanted["proto"])
        for columns in (np.s_[..., :2], np.s_[..., 2:4], np.s_[..., 4:10], np.s_[..., 10:]):
            assert_near(decoded[columns], wanted["decoded"][columns])
        fold_batch_norm(model)
    assert not [name for name in nn.state_arrays(model) if ".bn." in name]


def test_training_mask_outputs_match_stored_values():
    # Both backends agree in float64 to 1e-9, from which the stored float32 is up to 3e-5 off, of
    # the largest value: batches of two images have channels of little variance.
    case, wanted = info("segment")["w0125"], stored("segment/model_w0125")
    model = nn.place(drawn_model("yolov5n-seg.yaml", case["gain"]), "cpu", "float64")
    model.train()
    raw, _ = outputs(model, drawn_input(case["input"]).astype(np.float64))
    names = "train_raw0", "train_raw1", "train_raw2", "train_proto"
    for found, name in zip(raw, names, strict=True):
        assert_near(found, wanted[name], 5e-5)
