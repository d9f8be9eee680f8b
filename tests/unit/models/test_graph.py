"""Model YAMLs: what is accepted or refused, that nothing of them runs; activations, image sizes."""

import copy
import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import yaml

from duet.backend import autograd, nn, ops
from duet.models.blocks import registry
from duet.models.blocks.yolov5 import find_activation
from duet.models.detector import Detector, require_image_size
from duet.models.graph import parse_model, plan_layers, read_model_yaml
from duet.models.heads.base import Head
from duet.utils.errors import UserError
from duet.utils.files.json_files import parse_json
from duet.utils.files.model_yamls import scale_depth, scale_width
from duet.utils.project import PROJECT


@pytest.fixture
def document():
    with open("models/yolov5n.yaml", encoding="utf-8") as file:
        return yaml.safe_load(file)


def test_class_count_argument_overrides_the_yaml():
    spec = read_model_yaml("models/yolov5n.yaml", num_classes=3)
    assert spec.num_classes == 3
    assert spec.document["nc"] == 3
    assert nn.state_arrays(Detector(spec))["model.24.m.0.weight"].shape == (24, 64, 1, 1)


def test_model_is_rebuilt_from_its_spec_document(document):
    assert parse_model(document).num_classes == 80
    spec = parse_model(document, num_classes=5)
    assert parse_model(spec.document) == spec


def test_stride_is_that_of_the_deepest_layer():
    head = [[-1, 1, "nn.Upsample", ["None", 2, "nearest"]], [-1, 1, "Detect", ["nc", "anchors"]]]
    document = {
        "nc": 1, "depth_multiple": 1.0, "width_multiple": 1.0, "anchors": [[10, 13]], "head": head,
        "backbone": [[-1, 1, "Conv", [8, 3, 2]], [-1, 1, "Conv", [8, 3, 2]]],
    }  # fmt: skip
    model = Detector(parse_model(document))
    assert (model.head.strides, model.stride) == ((2,), 4)


def test_multiples_round_depth_to_one_and_width_to_eight():
    assert [scale_depth(number, 0.33) for number in (1, 3, 6, 9)] == [1, 1, 2, 3]
    assert (scale_width(64, 0.25), scale_width(100, 0.33)) == (16, 40)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d["backbone"][0].__setitem__(2, "Convv"), "unknown block 'Convv'; known: Bottl"),
        (lambda d: d["backbone"][0].__setitem__(3, ["__import__('os')"]), "layer 0, Conv"),
        (lambda d: d["backbone"][0].__setitem__(0, 5), "layer 0: from 5"),
        (lambda d: d["backbone"][2].__setitem__(1, 0), "layer 2: number 0"),
        (lambda d: d["head"][1].__setitem__(3, [None, 4, "nearest"]), "accepted: [None, 2, near"),
        (lambda d: d["head"][2].__setitem__(0, [-1, 4]), "strides [16, 8]"),
        (
            lambda d: d["head"].pop(),
            "heads (Classify or Detect or DetectAnchorFree or Segment) at layers []",
        ),
        (lambda d: d["head"].append(d["head"][-1]), "at layers [24, 25]; exactly the last"),
        (lambda d: d["head"][-1].__setitem__(3, [80, "anchors"]), "first arg must be nc, 3"),
        (lambda d: d["backbone"][1].__setitem__(3, [128, 3, 2, 1, 5]), "5 groups do not divide"),
        (
            lambda d: d["backbone"][1].__setitem__(1, 3),
            "layer 1: number 3; Conv cannot repeat: use 1",
        ),
        (lambda d: d["backbone"][2].__setitem__(0, [-1, 0]), "C3 takes exactly one source"),
        (lambda d: d["backbone"][2].__setitem__(3, [128, "yes"]), "shortcut is 'yes'"),
        (lambda d: d["backbone"][9].__setitem__(3, [1024, 4]), "kernel_size is 4; accepted: odd"),
        (
            lambda d: d["backbone"].__setitem__(0, [-1, 1, "nn.Upsample", [None, 2, "nearest"]]),
            "1;",
        ),
        (lambda d: d.__setitem__("depth_multiple", float("inf")), "finite numbers: Out of range"),
        (lambda d: d["anchors"].pop(), "2 levels of anchors, 3 sources"),
        (lambda d: d.__setitem__("anchors", 0), "anchors: 0; accepted: a list per level"),
        (lambda d: d.__setitem__("ch", 2), "ch: 2; accepted: 1 (grey) or 3 (RGB)"),
        (lambda d: d.__setitem__("act", "os.system('id')"), "act: \"os.system('id')\"; accepted"),
        (lambda d: d.__setitem__("act", "nn.LeakyReLU(1.5)"), "with SLOPE from 0 to 1"),
        (
            lambda d: d["backbone"].__setitem__(2, [-1, 1, "nn.MaxPool2d", [2, 1]]),
            "do not give a map of image size / stride; use an odd kernel_size",
        ),
        (
            lambda d: d["backbone"][3].__setitem__(3, [256, 4, 2]),
            "layer 3, Conv [256, 4, 2]: kernel_size 4, stride 2 and padding 2 do not give a map",
        ),
        (lambda d: d["backbone"][3].__setitem__(3, [256, 4, 2, 2]), "/ stride; use padding 1"),
        (lambda d: d["backbone"][3].__setitem__(3, [256, 3, 2, 2]), "/ stride; use padding 1"),
        (lambda d: d["backbone"][3].__setitem__(3, [256, 4, 1, 1]), "use an odd kernel_size"),
        (lambda d: d["backbone"][3].__setitem__(slice(2, 4), ["DWConv", [256, 4]]), "use an odd"),
        (lambda d: d["backbone"][3].__setitem__(slice(2, 4), ["GhostConv", [256, 4]]), "use an o"),
        (lambda d: d["backbone"][0].__setitem__(slice(2, 4), ["Focus", [64, 2]]), "use an odd ker"),
        (
            lambda d: d["backbone"].__setitem__(2, [-1, 1, "nn.MaxPool2d", []]),
            "kernel_size is None",
        ),
        (
            lambda d: d["backbone"].__setitem__(2, [-1, 1, "nn.MaxPool2d", [3, 1, 2]]),
            "use padding 1",
        ),
        (lambda d: d["backbone"].__setitem__(2, [-1, 1, "nn.ZeroPad2d", [1]]), "[[0, 1, 0, 1]]"),
        (
            lambda d: d["backbone"].__setitem__(2, [-1, 1, "nn.ZeroPad2d", [[0, 1, 0, 1]]]),
            "layer 3, Conv [256, 3, 2]: its source is padded",
        ),
        (lambda d: d.pop("head"), "missing head"),
    ],
)
def test_wrong_document_is_refused_with_its_place(document, change, message):
    change(document)
    with pytest.raises(UserError) as caught:
        Detector(parse_model(document, num_classes=3))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "text", ["[1, 2", "- a list", "nc: 1\nnc: 2", "!!python/object/apply:os.getcwd []"]
)
def test_file_that_is_no_model_is_refused_by_name(tmp_path, text):
    path = tmp_path / "model.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match="model.yaml"):
        read_model_yaml(path)


@pytest.mark.parametrize(
    "value", ["2024-01-01", "2024-01-01 10:00:00", ".nan", "-.inf", "!!binary aGk=", "!!set {a}",
              "{~: 1}", "{1.5: 1}", "{1: 1, '1': 2}", "1" * 30],
)  # fmt: skip
@pytest.mark.parametrize("place", ["note: {}\n{}", "{1}note:\n  - deep: [{0}]\n"])
def test_value_that_no_checkpoint_can_hold_is_refused_early(tmp_path, value, place):
    text = Path("models/yolov5n.yaml").read_text(encoding="utf-8")
    path = tmp_path / "model.yaml"
    path.write_text(place.replace("{}", "{0}", 1).replace("{}", "{1}").format(value, text))
    with pytest.raises(UserError, match=rf"--cfg {path}: line \d+, note"):
        read_model_yaml(path)


@pytest.mark.parametrize("path", sorted(Path("models").rglob("*.yaml")), ids=str)
def test_shipped_model_survives_a_checkpoint(path):
    document = read_model_yaml(path).document
    assert parse_json(json.dumps(document)) == document


def test_initial_weights_depend_only_on_the_seed(document):
    small = copy.deepcopy(document)
    first, second, other = (Detector(parse_model(small, num_classes=3)) for _ in range(3))
    first.initialize(0)
    second.initialize(0)
    other.initialize(1)
    a, b, c = (nn.state_arrays(model) for model in (first, second, other))
    assert all(np.array_equal(a[name], b[name]) for name in a)
    assert not np.array_equal(a["model.0.conv.weight"], c["model.0.conv.weight"])
    bound = 1 / np.sqrt(3 * 6 * 6)
    weight = a["model.0.conv.weight"]
    assert np.abs(weight).max() <= bound
    # Uniform in +-bound: the standard deviation is bound / sqrt(3), here from 1,728 draws.
    assert weight.std() == pytest.approx(bound / np.sqrt(3), rel=0.05)


def test_initial_biases_expect_eight_objects_per_image(document):
    model = Detector(parse_model(document, num_classes=3))
    model.initialize(0)
    bias = nn.state_arrays(model)["model.24.m.2.bias"].reshape(3, 8)
    spread = 1 / np.sqrt(256)  # of the draw beneath
    assert np.abs(bias[:, 4] - np.log(8 / 400)).max() <= spread
    assert np.abs(bias[:, 5:] - np.log(0.6 / 2.00001)).max() <= spread
    assert np.abs(bias[:, :4]).max() <= spread


@pytest.mark.parametrize("head", [
    [[2, -1], 1, "Detect", ["nc", "anchors"]],
    [[2, -1], 1, "DetectAnchorFree", ["nc"]],
    [[2, -1], 1, "Segment", ["nc", "anchors", 4, 16]],
    [-1, 1, "Classify", ["nc"]],
], ids=lambda line: line[2])  # fmt: skip
def test_plan_counts_equal_the_built_arrays_of_every_block(head):
    spec = parse_model({
        "nc": 3, "depth_multiple": 1.0, "width_multiple": 1.0, "anchors": 2,
        "backbone": [
            [-1, 1, "Focus", [16, 3]], [-1, 1, "Conv", [24, 3, 2, 1, 8]], [-1, 2, "C3", [16]],
            [-1, 1, "C3", [16, False]], [-1, 1, "SPP", [16, [3, 5]]], [-1, 1, "SPPF", [24, 3]],
            [-1, 1, "Bottleneck", [16]], [-1, 3, "Bottleneck", [24, False]],
            [-1, 1, "DWConv", [16, 3, 1]], [-1, 1, "GhostConv", [24, 3, 1]],
            [-1, 2, "C3Ghost", [32]], [-1, 2, "C3TR", [16]], [-1, 2, "C2f", [16, True]],
            [-1, 1, "nn.ZeroPad2d", [[0, 1, 0, 1]]], [-1, 1, "nn.MaxPool2d", [2, 1]],
        ],
        "head": [
            [-1, 1, "nn.Upsample", [None, 2, "nearest"]], [[-1, 0], 1, "Concat", [1]],
            head,
        ],
    })  # fmt: skip
    heads = set(registry.names_of(Head))
    assert {layer.block for layer in spec.layers} == registry._BLOCKS.keys() - heads | {head[2]}
    model = Detector(spec)
    for index, plan in enumerate(plan_layers(spec)):
        arrays = nn.state_arrays(model.model[index])
        assert plan.numbers == sum(array.size for array in arrays.values() if array.ndim)
    raw = model.eval()(ops.tensor(np.zeros((2, 3, 8, 12), np.float32)))
    assert [tuple(output.shape) for output in raw] == {
        "Detect": [(2, 2, 2, 3, 8), (2, 2, 4, 6, 8)],
        "DetectAnchorFree": [(2, 67, 2, 3), (2, 67, 4, 6)],
        "Segment": [(2, 2, 2, 3, 12), (2, 2, 4, 6, 12), (2, 4, 4, 6)],
        "Classify": [(2, 3)],
    }[head[2]]


LAYER = [-1, 1, "Conv", [64, 3, 2]]
DOUBLING = [[]]
for _ in range(40):
    DOUBLING = [DOUBLING, DOUBLING]
HOSTILE = {
    "many layers": ({"backbone": [LAYER] * 2000}, "2,003 layers; accepted: at most 1,000"),
    "many sources": ({"head": [[[0] * 2000, 1, "Concat", [1]]]}, "2,000 sources; accepted: "),
    "many repeats": ({"backbone": [[-1, 10**9, "C3", [64]]]}, "accepted: 1 to 1,000"),
    "repeats in sum": ({"backbone": [[-1, 600, "C3", [8]]] * 2}, "1,200 blocks up to here"),
    "wide": ({"backbone": [[-1, 1, "Conv", [10**18, 3]]]}, "accepted: whole numbers from 1 "),
    "wide maps": ({"backbone": [[-1, 1, "Conv", [8_000]]]}, "8,000 values per pixel in all maps"),
    "joined maps": ({"head": [[[0] * 999, 1, "Concat", [1]]]}, "values per pixel in all maps"),
    "large": ({"backbone": [[-1, 1, "Conv", [60_000, 3, 8]], [-1, 1, "Conv", [60_000, 3]]]},
              "32,402,100,000 weights up to here"),
    "padding": ({"backbone": [[-1, 1, "Conv", [8, 3, 1, 9]]]}, "do not give a map"),
    "a large pool": ({"backbone": [[-1, 1, "SPP", [8, [10**9 + 1]]]]}, "odd numbers up to 32"),
    "wide attention": ({"backbone": [[-1, 1, "C3TR", [60_000]]]}, "weights up to here"),
    "many classes": ({"nc": 10**6}, "nc: 1000000; accepted: a number of classes"),
    "infinite anchors": ({"anchors": [[1, 10**18]] * 3}, "anchors: .1, 1000"),
    "a long number": ({"nc": 10**30}, "is beyond 64 bits"),
    "a deep value": ({"nc": DOUBLING}, "over 200,000 characters"),
    "much that is unused": ({"unused": [[0] * 300] * 300}, "over 200,000 characters"),
    "a long text many times": ({"unused": ["x" * 10**6] * 1000}, "over 200,000 characters"),
    "an object": ({"unused": object}, "more than text and finite"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_excessive_model_is_refused_before_allocation(document, name):
    changes, reason = HOSTILE[name]
    small = {**document, "width_multiple": 1.0, "depth_multiple": 1.0, "backbone": [LAYER],
             "head": [[[-1, -1, -1], 1, "Detect", ["nc", "anchors"]]]}  # fmt: skip
    if "head" in changes:
        changes = {"head": changes["head"] + small["head"]}
    elif "backbone" in changes:
        changes = {"head": [[-1, 1, "Conv", [8]]] * 2 + small["head"], **changes}
    tracemalloc.start()
    with pytest.raises(UserError, match=reason) as caught:
        plan_layers(parse_model({**small, **changes}))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(str(caught.value)) < 600
    assert peak < 8_000_000  # measured below 4 MB: a copy of 50,000 nodes


POINTS = np.concatenate([np.linspace(-8, 8, 65) + 1e-3, [-60.0, 60.0]])
FORMULAS = {
    None: lambda x: x / (1 + np.exp(-x)),
    "nn.SiLU()": lambda x: x / (1 + np.exp(-x)),
    "SiLU": lambda x: x / (1 + np.exp(-x)),
    "nn.ReLU()": lambda x: np.maximum(x, 0),
    "nn.LeakyReLU(0.1)": lambda x: np.where(x > 0, x, np.float32(0.1) * x),
    "nn.LeakyReLU(negative_slope=0.5)": lambda x: np.where(x > 0, x, 0.5 * x),
    "nn.LeakyReLU()": lambda x: np.where(x > 0, x, np.float32(0.01) * x),
    "nn.Hardswish()": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "nn.Mish()": lambda x: x * np.tanh(np.log1p(np.exp(x))),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_activation_and_gradient_follow_the_formula(name):
    activation, formula = find_activation(name), FORMULAS[name]
    x = autograd.variable(POINTS)
    y = activation(x)
    np.testing.assert_allclose(ops.to_numpy(y), formula(POINTS), rtol=1e-12, atol=1e-12)
    (gradient,) = autograd.gradients(ops.sum(y), [x])
    wanted = (formula(POINTS + 1e-6) - formula(POINTS - 1e-6)) / 2e-6
    # The differences err by rounding / step, 60 * 1e-16 / 1e-6.
    np.testing.assert_allclose(ops.to_numpy(gradient), wanted, atol=1e-8)


def test_model_uses_its_activation_in_every_convolution():
    document = yaml.safe_load((PROJECT / "models" / "yolov5n.yaml").read_text())
    images = ops.tensor(np.random.default_rng(0).random((1, 3, 64, 64)).astype(np.float32))
    found = {}
    for name in ("nn.SiLU()", "nn.LeakyReLU(1)", "nn.LeakyReLU(1.0)"):
        spec = parse_model({**document, "act": name, "width_multiple": 0.125}, num_classes=1)
        assert spec == parse_model(spec.document)
        model = Detector(spec)
        model.initialize(0)
        with autograd.no_grad():
            found[name] = ops.to_numpy(nn.frozen_copy(model)(images)[0])
    assert not np.array_equal(found["nn.SiLU()"], found["nn.LeakyReLU(1)"])
    np.testing.assert_array_equal(found["nn.LeakyReLU(1)"], found["nn.LeakyReLU(1.0)"])


def test_attention_weights_are_drawn_initially():
    model = Detector(read_model_yaml("yolov5s-transformer", num_classes=1))
    model.initialize(3)
    state = nn.state_arrays(model)
    for name in ("linear.weight", "linear.bias", "tr.0.q.weight", "tr.0.ma.in_proj_weight",
                 "tr.0.ma.in_proj_bias"):  # fmt: skip
        drawn, bound = state[f"model.8.m.{name}"], 1 / np.sqrt(256)
        assert np.abs(drawn).max() <= bound
        # Uniform: the deviation is bound / sqrt(3), here from 256 draws or more.
        assert drawn.std() == pytest.approx(bound / np.sqrt(3), rel=0.1)


@pytest.mark.parametrize(
    ("size", "stride", "fitting"), [(33, 32, 64), (63, 32, 64), (650, 32, 672), (100, 64, 128)]
)
@pytest.mark.parametrize("trains", [True, False])
def test_size_off_the_stride_grid_is_refused(size, stride, fitting, trains):
    message = f"--img {size} is not a multiple of the model's stride {stride}; use {fitting}"
    with pytest.raises(UserError, match=message):
        require_image_size(size, stride, trains)
    require_image_size(fitting, stride, trains)


@pytest.mark.parametrize("stride", [32, 64])
def test_single_cell_is_refused_for_training_only(stride):
    with pytest.raises(UserError, match=f"--img {stride} .*BatchNorm.*; use {2 * stride}"):
        require_image_size(stride, stride, trains=True)
    require_image_size(stride, stride, trains=False)


# Bytes of the largest map of two images of 64 x 96: YOLOv5n's first one has 16 channels at half the
# size; C3TR at stride 2 has four heads, each with a number for each pair of its cells.
LARGEST_MAP, PAIRS = 4 * 2 * 16 * 32 * 48, 4 * 2 * 4 * (32 * 48) ** 2
ATTENTION = {
    "nc": 1, "depth_multiple": 1.0, "width_multiple": 1.0, "anchors": 1,
    "backbone": [[-1, 1, "Conv", [8, 3, 2]], [-1, 1, "C3TR", [8]]],
    "head": [[-1, 1, "Detect", ["nc", "anchors"]]],
}  # fmt: skip


@pytest.mark.parametrize(
    ("model", "free", "trains", "fits"),
    [
        (None, LARGEST_MAP, False, True),
        (None, LARGEST_MAP - 1, False, False),
        (None, 2 * LARGEST_MAP, True, False),
        (None, 10 * LARGEST_MAP, True, True),
        (ATTENTION, PAIRS, False, True),
        (ATTENTION, PAIRS - 1, False, False),
    ],
)
def test_maps_beyond_free_memory_are_refused(monkeypatch, document, model, free, trains, fits):
    detector = Detector(parse_model(model or document, 1))
    monkeypatch.setattr("duet.utils.memory.free_memory", lambda: free)
    if fits:
        detector.require_memory((2, 3, 64, 96), trains)
    else:
        with pytest.raises(UserError, match="maps of 2 images of 96 x 64 px .* smaller --img"):
            detector.require_memory((2, 3, 64, 96), trains)
