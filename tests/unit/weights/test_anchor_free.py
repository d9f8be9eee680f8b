"""Public anchor-free files: read by names and shapes, nothing of them run; others are refused."""

import copy
from functools import cache

import numpy as np
import pytest

from duet.backend import autograd, ops
from duet.models.graph import parse_model
from duet.models.stored import load_detector
from duet.utils.errors import UserError
from duet.utils.evaluation.nms import non_max_suppression
from duet.utils.files.model_yamls import shipped_model
from duet.utils.files.yaml_files import read_yaml
from duet.utils.geometry.detections import SuppressionSettings
from duet.utils.weights.load import load_weights
from duet.utils.weights.pickle_reader import Record
from duet.utils.weights.public_heads import anchor_free_document
from tests.environments import shared_path
from tests.foreign_files import dump, module, write_zip

FOLDER = "golden/anchor_free/checkpoints"
IMAGES = ("000000000009", "000000000025", "000000000030", "000000000034")
# Those of the public package; here the IoU is another by default.
PREDICT = SuppressionSettings(confidence_threshold=0.25, iou_threshold=0.7, max_detections=300)
VAL = SuppressionSettings(
    confidence_threshold=0.001, iou_threshold=0.7, max_detections=300, multi_label=True
)


@cache
def predicted():
    return np.load(shared_path(f"{FOLDER}/predict.npz"))


def weights_of(name):
    return load_weights(shared_path(f"{FOLDER}/{name}.pt"))


@pytest.mark.parametrize("fold", [False, True])
@pytest.mark.parametrize("name", ["yolov5u", "yolov8"])
@pytest.mark.parametrize("image", IMAGES)
def test_stored_images_give_stored_rows(name, image, fold):
    model = load_detector(weights_of(f"{name}_stripped"), "cpu", fold)
    pixels = predicted()[f"{image}_input_u8"][None]
    with autograd.no_grad():
        raw = model(ops.normalize_images(ops.tensor(pixels), "float32"))
        decoded = ops.to_numpy(model.decode(raw))[0]
        (above,) = model.decode_above(raw, SuppressionSettings(0.001))
    wanted = predicted()[f"{name}_{image}_decoded_every4"].T
    # Float32 in another order; stored half precision weights were fused before.
    np.testing.assert_allclose(decoded[::4, :4], wanted[:, :4], rtol=0, atol=5e-3)
    np.testing.assert_allclose(decoded[::4, 5:], wanted[:, 4:], rtol=0, atol=2e-4)
    for settings, key in ((PREDICT, "network"), (VAL, "network_val")):
        found = non_max_suppression(above, settings)
        rows = predicted()[f"{name}_{image}_rows_{key}"]
        assert_same_rows(found, rows)


def assert_same_rows(found, rows):
    """Rows as sets: scores that are nearly equal may change places."""
    assert len(found.scores) == len(rows)
    own = np.column_stack([found.boxes_xyxy, found.scores, found.class_index])
    free = np.ones(len(rows), bool)
    for row in own:
        apart = np.abs(rows[:, :4] - row[:4]).max(1) + 1e3 * np.abs(rows[:, 4] - row[4])
        apart = np.where(free & (rows[:, 5] == row[5]), apart, np.inf)
        assert apart.min() < 0.05
        free[apart.argmin()] = False


@pytest.mark.parametrize(
    "name",
    [
        "tasks.SegmentationModel", "tasks.PoseModel", "tasks.OBBModel", "tasks.WorldModel",
        "modules.transformer.AIFI",
    ],
)  # fmt: skip
def test_other_ultralytics_tasks_get_one_message(tmp_path, name):
    path = write_zip(tmp_path / "x.pt", dump({"model": module(f"ultralytics.nn.{name}")}))
    with pytest.raises(UserError, match="x.pt: it holds a model of the ultralytics package .* YOL"):
        load_weights(path)


def record(kind, **state):
    return Record(f"ultralytics.nn.modules.{kind}", (), {"_modules": {}, **state})


def public_model(document, names=(), layers=("conv.Conv", "head.Detect"), **head):
    parts = [record(kind) for kind in layers]
    parts[-1].state.update({"nc": 3, "reg_max": 16, **head})
    model = Record("ultralytics.nn.tasks.DetectionModel", (), {"yaml": document})
    names = names or (f"model.{len(parts) - 1}.cv3.0.0.conv.weight",)
    return model, parts, dict.fromkeys(names)


YAML = {
    "nc": 80,
    "scales": {"m": [0.67, 0.75, 768]},
    "scale": "m",
    "backbone": [[-1, 1, "Conv", [1024, 3, 2]]],
    "head": [[[0], 1, "Detect", ["nc"]]],
}


def test_public_size_description_equals_our_yaml():
    ours = read_yaml("--cfg", shipped_model("yolov8m"), "")
    public = copy.deepcopy({**ours, "scale": "m", "scales": {"m": [0.67, 0.75, 768]}})
    for line in (*public["backbone"], *public["head"]):
        line[3][:1] = [1024] if line[3][:1] == [768] else line[3][:1]
    public["head"][-1][2] = "Detect"
    layers = [{"nn.Upsample": "upsampling.Upsample"}.get(line[2], f"block.{line[2]}")
              for line in (*public["backbone"], *public["head"])]  # fmt: skip
    found = anchor_free_document(*public_model(public, layers=layers, nc=7))
    assert found == {**ours, "nc": 7}


@pytest.mark.parametrize(
    ("layers", "head", "names"),
    [
        (("block.C3k2", "head.Detect"), {}, ()),
        (("conv.Conv", "head.Segment"), {}, ()),
        (("conv.Conv", "head.v10Detect"), {}, ()),
        (("conv.Conv", "head.Detect"), {"reg_max": 1}, ()),
        # What the class branch of later models begins with.
        (("conv.Conv", "head.Detect"), {}, ("model.1.cv3.0.0.0.conv.weight",)),
    ],
)
def test_later_ultralytics_models_get_the_same_message(layers, head, names):
    with pytest.raises(UserError, match="it holds a model of the ultralytics package"):
        anchor_free_document(*public_model(YAML, names, layers, **head))


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (None, "describes no model"),
        ({"nc": 3}, "describes no model"),
        ({**YAML, "head": [[[0], 1, "Segment", ["nc"]]]}, "its model YAML has"),
        ({**YAML, "head": [3]}, "its model YAML has"),
        ({**YAML, "scale": []}, "depth_multiple: None"),
        ({**YAML, "backbone": [[-1, 1, [], [8]]]}, "unknown block"),
        ({**YAML, "activation": [1]}, "act: "),
    ],
)
def test_foreign_description_is_refused_by_name(document, message):
    with pytest.raises(UserError, match=message):
        parse_model(anchor_free_document(*public_model(document)))
