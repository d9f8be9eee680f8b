"""Files of public models: Ghost, transformer and other layers, masks and classes."""

import dataclasses
import json

import numpy as np
import pytest

from duet.backend import autograd, nn, ops
from duet.models.detector import Detector
from duet.models.graph import parse_model, read_model_yaml
from duet.models.heads.classify.head import ClassifyHead
from duet.models.stored import detector_of_weights
from duet.utils.errors import UserError
from duet.utils.files.model_yamls import shipped_model
from duet.utils.files.yaml_files import read_yaml
from duet.utils.weights.__main__ import main
from duet.utils.weights.load import load_weights
from duet.utils.weights.public_heads import IMAGE_MEAN, IMAGE_STD
from tests.foreign_files import PublicModel, TorchFile
from tests.golden_models import draw, drawn_input, info, stored
from tests.shared_files import shared_path
from tests.unit.weights.test_files import write_state_dict


def drawn(name, **changes):
    """A narrow public model with drawn weights."""
    document = read_yaml("--cfg", shipped_model(name), "")
    cut = {"width_multiple": 0.0625, "depth_multiple": 0.1, "nc": 2, "ch": 3}
    model = Detector(parse_model({**document, **cut, **changes}))
    model.initialize(0)
    return nn.frozen_copy(model)


def written(path, model, **changes):
    """Write a model as a file of the public YOLOv5."""
    file, strides = TorchFile(), model.head.strides
    record = PublicModel(
        file, nn.state_arrays(model), model.spec.document, strides=strides, **changes
    )
    return file.write_zip(path, {"model": record.root(), "epoch": -1})


def decoded(model):
    images = np.random.default_rng(0).random((1, 3, 64, 64)).astype(np.float32)
    with autograd.no_grad():
        return ops.to_numpy(model.decode(model(ops.tensor(images))))


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("yolov5s-ghost", {}),
        ("yolov5s-transformer", {}),
        ("yolov3-tiny", {}),
        ("yolov5s-LeakyReLU", {"activation": "LeakyReLU", "attributes": {"negative_slope": 0.1}}),
        ("yolov5-p34", {}),
        ("yolov5n-seg", {}),
    ],
)
def test_a_file_of_a_public_model_decodes_as_the_model_does(tmp_path, name, changes):
    model = drawn(name)
    weights = load_weights(written(tmp_path / "public.pt", model, **changes))
    again = nn.frozen_copy(detector_of_weights(weights))
    assert again.head.strides == model.head.strides
    # The file has anchors in cells, its description in pixels: two roundings.
    np.testing.assert_allclose(decoded(again), decoded(model), rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("yolov5s-ghost", {"all_active": True}, "activation SiLU; by its model YAML Identity"),
        ("yolov5s-ghost", {"activation": "ReLU"}, "activation ReLU; by its model YAML SiLU"),
        ("yolov5s-transformer", {"heads": 8}, "has 8 heads; 4 are built here"),
        ("yolov5s-LeakyReLU", {}, r"activation SiLU; by its model YAML LeakyReLU\(0.1\)"),
        (
            "yolov5s-LeakyReLU",
            {"activation": "LeakyReLU", "attributes": {"negative_slope": 0.2}},
            r"LeakyReLU\(0.2\); by its model YAML LeakyReLU\(0.1\)",
        ),
    ],
)
def test_a_file_that_would_compute_something_else_is_refused(tmp_path, name, changes, message):
    path = written(tmp_path / "public.pt", drawn(name), **changes)
    with pytest.raises(UserError, match=message):
        load_weights(path)


NETWORK_TOLERANCE = 2e-5


def by_rule(yaml_name, classes, gain):
    """The arrays of a public model, by their names."""
    state = nn.state_arrays(Detector(read_model_yaml(f"models/{yaml_name}.yaml", classes)))
    return {name: draw("", name, array, gain) for name, array in state.items()}


def converted(path, yaml_name, classes):
    out, cfg = path.with_suffix(".safetensors"), path.with_suffix(".yaml")
    document = {**read_model_yaml(f"models/{yaml_name}.yaml").document, "nc": classes}
    cfg.write_text(json.dumps(document), encoding="utf-8")
    main(["convert", str(path), str(out), "--cfg", str(cfg)])
    return load_weights(out)


def raw_outputs(model, images):
    with autograd.no_grad():
        return [ops.to_numpy(output) for output in model(ops.tensor(images))]


def assert_near(found, wanted):
    np.testing.assert_allclose(found, wanted, rtol=0, atol=NETWORK_TOLERANCE * np.abs(wanted).max())


def test_a_state_dict_of_a_segmentation_model_gives_the_stored_outputs(tmp_path):
    case, wanted = info("segment")["n"], stored("segment/model_n")
    arrays = by_rule("yolov5n-seg", 5, case["gain"])
    path = write_state_dict(tmp_path / "seg.pt", arrays=arrays, prefix="module.")
    weights = converted(path, "yolov5n-seg", 5)
    assert weights.header.model["nc"] == 5
    model = nn.frozen_copy(detector_of_weights(weights))
    images = drawn_input(case["input"])
    assert_near(raw_outputs(model, images)[-1], wanted["proto"])
    with autograd.no_grad():
        found = ops.to_numpy(model.decode(model(ops.tensor(images))))
    for columns in (np.s_[..., :4], np.s_[..., 4:10], np.s_[..., 10:]):
        assert_near(found[columns], wanted["decoded"][columns])


def test_a_state_dict_of_a_classifier_gives_the_stored_logits(tmp_path):
    arrays = by_rule("yolov5n-cls", 10, info("classify")["gain"]["n"])
    weights = converted(write_state_dict(tmp_path / "cls.pt", arrays=arrays), "yolov5n-cls", 10)
    assert weights.header.model["nc"] == 10
    model = nn.frozen_copy(detector_of_weights(weights))
    model.head.image_mean = None  # the stored input is normalized already
    (logits,) = raw_outputs(model, drawn_input([2, 3, 224, 192]))
    assert_near(logits, stored("classify/yolov5n-cls")["eval_logits_fp64"])


def test_a_pickled_classifier_is_the_model_of_its_yaml():
    weights = load_weights(shared_path("golden/checkpoints/cls.pt"))
    document = dict(read_model_yaml("models/yolov5n-cls.yaml").document)
    ours = Detector(parse_model({**document, "width_multiple": 0.0625}, 3))
    nn.load_state_arrays(ours, weights.ema)
    images = np.random.default_rng(0).random((2, 3, 64, 64)).astype(np.float32)
    theirs = nn.frozen_copy(detector_of_weights(weights))
    (wanted,), (found,) = (raw_outputs(x, images) for x in (nn.frozen_copy(ours), theirs))
    assert np.array_equal(found, wanted) and found.shape == (2, 3)


def test_images_are_normalized_as_a_file_is_checked_to_ask_for():
    assert list(ClassifyHead.image_mean) == IMAGE_MEAN
    assert list(ClassifyHead.image_std) == IMAGE_STD


@pytest.mark.parametrize(
    ("yaml_name", "other"),
    [("yolov5n-seg", "yolov5n"), ("yolov5n-cls", "yolov5n-seg"), ("yolov5n", "yolov5n-seg")],
)
def test_the_yaml_of_another_task_is_refused_for_a_state_dict(tmp_path, yaml_name, other):
    path = write_state_dict(tmp_path / "state.pt", arrays=by_rule(yaml_name, 5, 1.0))
    with pytest.raises(UserError):
        converted(path, other, 5)
    assert not path.with_suffix(".safetensors").exists()


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("seg", {"args": ["nc", "anchors", 10**9, 256]}, "layer 24"),
        ("seg", {"nc": 10**9}, "nc: 1000000000; accepted: a number of classes from 1 to 10,000"),
        ("cls", {"nc": 10_000}, "layer 9"),
        ("cls", {"args": ["nc", 1280]}, "layer 9"),
        ("seg", {"origin": [[17, 20]]}, "layer 24"),
    ],
)
def test_a_description_of_another_head_is_refused_before_it_is_made(name, changes, message):
    weights = load_weights(shared_path(f"golden/checkpoints/{name}.pt"))
    document = dict(weights.header.model)
    *layers, (origin, number, block, args) = document["head"]
    (origin,) = changes.get("origin", [origin])
    line = [origin, number, block, changes.get("args", args)]
    document |= {"head": [*layers, line], "nc": changes.get("nc", document["nc"])}
    header = dataclasses.replace(weights.header, model=document)
    with pytest.raises(UserError, match=message):
        detector_of_weights(dataclasses.replace(weights, header=header))
