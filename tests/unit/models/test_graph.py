"""Model YAMLs: what is accepted, what is refused, and that nothing of them runs."""

import copy
import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import yaml

from duet.backend import nn, ops
from duet.models.blocks import registry
from duet.models.detector import Detector
from duet.models.graph import parse_model, plan_layers, read_model_yaml
from duet.models.heads.base import Head
from duet.utils.errors import UserError
from duet.utils.json_files import parse_json
from duet.utils.model_yamls import scale_depth, scale_width


@pytest.fixture
def document():
    with open("models/yolov5n.yaml", encoding="utf-8") as file:
        return yaml.safe_load(file)


def test_the_number_of_classes_replaces_that_of_the_yaml():
    spec = read_model_yaml("models/yolov5n.yaml", num_classes=3)
    assert spec.num_classes == 3
    assert spec.document["nc"] == 3
    assert nn.state_arrays(Detector(spec))["model.24.m.0.weight"].shape == (24, 64, 1, 1)


def test_a_model_is_rebuilt_from_the_document_of_its_spec(document):
    assert parse_model(document).num_classes == 80
    spec = parse_model(document, num_classes=5)
    assert parse_model(spec.document) == spec


def test_the_stride_is_that_of_the_deepest_layer_also_where_the_head_does_not_read_it():
    head = [[-1, 1, "nn.Upsample", ["None", 2, "nearest"]], [-1, 1, "Detect", ["nc", "anchors"]]]
    document = {
        "nc": 1, "depth_multiple": 1.0, "width_multiple": 1.0, "anchors": [[10, 13]], "head": head,
        "backbone": [[-1, 1, "Conv", [8, 3, 2]], [-1, 1, "Conv", [8, 3, 2]]],
    }  # fmt: skip
    model = Detector(parse_model(document))
    assert (model.head.strides, model.stride) == ((2,), 4)


@pytest.mark.parametrize(("number", "expected"), [(1, 1), (3, 1), (6, 2), (9, 3)])
def test_depth_multiple_rounds_and_keeps_one(number, expected):
    assert scale_depth(number, 0.33) == expected


@pytest.mark.parametrize(("channels", "multiple", "expected"), [(64, 0.25, 16), (100, 0.33, 40)])
def test_width_multiple_rounds_up_to_eight(channels, multiple, expected):
    assert scale_width(channels, multiple) == expected


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
        (lambda d: d.__setitem__("depth_multiple", float("inf")), "depth_multiple: inf"),
        (lambda d: d["anchors"].pop(), "2 levels of anchors, 3 sources"),
        (lambda d: d.__setitem__("anchors", 0), "anchors: 0; accepted: a list per level"),
        (lambda d: d.__setitem__("ch", 2), "ch: 2; accepted: 1 (grey) or 3 (RGB)"),
        (lambda d: d.__setitem__("act", "os.system('id')"), "act: \"os.system('id')\"; accepted"),
        (lambda d: d.__setitem__("act", "nn.LeakyReLU(1.5)"), "with SLOPE from 0 to 1"),
        (
            lambda d: d["backbone"].__setitem__(2, [-1, 1, "nn.MaxPool2d", [2, 1]]),
            "do not give a map",
        ),
        (
            lambda d: d["backbone"].__setitem__(2, [-1, 1, "nn.MaxPool2d", []]),
            "kernel_size is None",
        ),
        (
            lambda d: d["backbone"].__setitem__(2, [-1, 1, "nn.MaxPool2d", [3, 1, 2]]),
            "half of ker",
        ),
        (lambda d: d["backbone"].__setitem__(2, [-1, 1, "nn.ZeroPad2d", [1]]), "[[0, 1, 0, 1]]"),
        (
            lambda d: d["backbone"].__setitem__(2, [-1, 1, "nn.ZeroPad2d", [[0, 1, 0, 1]]]),
            "layer 3, Conv [256, 3, 2]: its source is padded",
        ),
        (lambda d: d.pop("head"), "missing head"),
    ],
)
def test_a_wrong_document_is_refused_with_its_place(document, change, message):
    change(document)
    with pytest.raises(UserError) as caught:
        Detector(parse_model(document, num_classes=3))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "text", ["[1, 2", "- a list", "nc: 1\nnc: 2", "!!python/object/apply:os.getcwd []"]
)
def test_a_file_that_is_no_model_is_refused_by_name(tmp_path, text):
    path = tmp_path / "model.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match="model.yaml"):
        read_model_yaml(path)


@pytest.mark.parametrize(
    "value", ["2024-01-01", "2024-01-01 10:00:00", ".nan", "-.inf", "!!binary aGk=", "!!set {a}",
              "{~: 1}", "{1.5: 1}", "{1: 1, '1': 2}", "1" * 30],
)  # fmt: skip
@pytest.mark.parametrize("place", ["note: {}\n{}", "{1}note:\n  - deep: [{0}]\n"])
def test_a_value_that_a_checkpoint_could_not_hold_is_refused_at_the_start(tmp_path, value, place):
    text = Path("models/yolov5n.yaml").read_text(encoding="utf-8")
    path = tmp_path / "model.yaml"
    path.write_text(place.replace("{}", "{0}", 1).replace("{}", "{1}").format(value, text))
    with pytest.raises(UserError, match=rf"--cfg {path}: line \d+, note"):
        read_model_yaml(path)


@pytest.mark.parametrize("path", sorted(Path("models").rglob("*.yaml")), ids=str)
def test_a_shipped_model_is_the_same_after_a_checkpoint(path):
    document = read_model_yaml(path).document
    assert parse_json(json.dumps(document)) == document


def test_initial_weights_depend_on_the_seed_alone(document):
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


def test_initial_biases_expect_eight_objects_an_image(document):
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
def test_a_plan_counts_the_numbers_of_every_block_as_it_is_made(head):
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
    "wide": ({"backbone": [[-1, 1, "Conv", [10**30, 3]]]}, "accepted: whole numbers from 1 "),
    "wide maps": ({"backbone": [[-1, 1, "Conv", [8_000]]]}, "8,000 values per pixel in all maps"),
    "joined maps": ({"head": [[[0] * 999, 1, "Concat", [1]]]}, "values per pixel in all maps"),
    "large": ({"backbone": [[-1, 1, "Conv", [60_000, 3, 8]], [-1, 1, "Conv", [60_000, 3]]]},
              "32,402,100,000 weights up to here"),
    "padding": ({"backbone": [[-1, 1, "Conv", [8, 3, 1, 9]]]}, "at most half of kernel_size"),
    "a large pool": ({"backbone": [[-1, 1, "SPP", [8, [10**9 + 1]]]]}, "odd numbers up to 32"),
    "wide attention": ({"backbone": [[-1, 1, "C3TR", [60_000]]]}, "weights up to here"),
    "many classes": ({"nc": 10**6}, "nc: 1000000; accepted: a number of classes"),
    "infinite anchors": ({"anchors": [[1, 10**30]] * 3}, "anchors: .1, 1000"),
    "a deep value": ({"nc": DOUBLING}, "nested too deep"),
    "much that is unused": ({"unused": [[0] * 300] * 300}, "too deep or too long"),
    "a long text many times": ({"unused": ["x" * 10**6] * 1000}, "more than text and finite"),
    "an object": ({"unused": object}, "more than text and finite"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_description_that_would_take_too_much_is_refused_before_it_takes_it(document, name):
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
