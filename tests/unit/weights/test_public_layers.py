"""Files of public models: Ghost, transformer and other layers, masks and classes."""

import dataclasses

import numpy as np
import pytest

from duet.backend import autograd, nn, ops
from duet.models.detector import Detector
from duet.models.graph import parse_model
from duet.models.heads.classify.head import ClassifyHead
from duet.models.stored import detector_of_weights
from duet.utils.errors import UserError
from duet.utils.files.model_yamls import shipped_model
from duet.utils.files.yaml_files import read_yaml
from duet.utils.weights.load import load_weights
from duet.utils.weights.public_heads import IMAGE_MEAN, IMAGE_STD
from tests.foreign_files import PublicModel, TorchFile
from tests.shared_files import shared_path


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


def test_images_are_normalized_as_a_file_is_checked_to_ask_for():
    assert list(ClassifyHead.image_mean) == IMAGE_MEAN
    assert list(ClassifyHead.image_std) == IMAGE_STD


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
