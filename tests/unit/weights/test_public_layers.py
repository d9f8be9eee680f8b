"""Files of public models: Ghost, transformer and other layers, masks and classes."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

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
from duet.utils.weights.load import load_weights
from duet.utils.weights.public_heads import IMAGE_MEAN, IMAGE_STD
from duet.utils.weights.yolov5 import unfold
from tests.environments import shared_path
from tests.foreign_files import Call, PublicModel, TorchFile


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
def test_public_file_decodes_like_its_model(tmp_path, name, changes):
    model = drawn(name)
    weights = load_weights(written(tmp_path / "public.pt", model, **changes))
    again = nn.frozen_copy(detector_of_weights(weights))
    assert again.head.strides == model.head.strides
    # The file has anchors in cells, its description in pixels: two roundings.
    np.testing.assert_allclose(decoded(again), decoded(model), rtol=1e-5)


def test_classifier_normalization_equals_checked_values():
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
def test_mismatched_head_is_refused_before_building(name, changes, message):
    weights = load_weights(shared_path(f"golden/checkpoints/{name}.pt"))
    document = dict(weights.header.model)
    *layers, (origin, number, block, args) = document["head"]
    (origin,) = changes.get("origin", [origin])
    line = [origin, number, block, changes.get("args", args)]
    document |= {"head": [*layers, line], "nc": changes.get("nc", document["nc"])}
    header = dataclasses.replace(weights.header, model=document)
    with pytest.raises(UserError, match=message):
        detector_of_weights(dataclasses.replace(weights, header=header))


# Classifiers: described in the size of their layers, since their files have no YAML.


MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
TRANSFORMS = "torchvision.transforms.transforms"


def small_classifier(
    file: TorchFile, repeats: Sequence[int] = (3, 6, 9), **changes: Any
) -> dict[str, Any]:
    """Return a public classifier's file of 16 channels, with other repeats of its first layers."""
    public = read_model_yaml("models/yolov5n-cls.yaml").document
    backbone = [list(line) for line in public["backbone"]]
    for index, number in zip((2, 4, 6), repeats, strict=False):
        backbone[index][1] = number
    backbone = backbone[: 2 * len(repeats) + 2] + backbone[-1:]
    size = {"width_multiple": 1 / 64, "depth_multiple": 2 / 3, "nc": 2}
    document = {**public, **size, "backbone": backbone, "act": changes.get("activation", "SiLU")}
    model = Detector(parse_model(document))
    values = {"mean": MEAN, "std": STD, **changes}
    norm = Call(f"{TRANSFORMS}.Normalize", (), values, True)
    steps = changes.get("steps", [Call("utils.augmentations.CenterCrop"), norm])
    own = {"kind": "models.yolo.ClassificationModel", "yaml": None, **changes}
    own["transforms"] = Call(f"{TRANSFORMS}.Compose", (), {"transforms": steps}, True)
    record = PublicModel(file, nn.state_arrays(model), document, **own).root()
    return {"model": record, "epoch": 3, "best_fitness": 0.75}


def written_classifier(path: Path, **changes: Any) -> Path:
    file = TorchFile()
    return file.write_zip(path, small_classifier(file, **changes))


def test_classifier_description_follows_its_layer_sizes(tmp_path):
    weights = load_weights(written_classifier(tmp_path / "cls.pt", activation="ReLU"))
    public = read_model_yaml("models/yolov5m-cls.yaml").document
    size = {"depth_multiple": 6 / 9, "width_multiple": 16 / 1024}
    assert weights.header.model == {**public, **size, "nc": 2, "act": "ReLU"}
    assert weights.header.class_names == ("cat", "dog")
    assert weights.header.settings["stored_fitness"] == 0.75
    assert detector_of_weights(weights).head.num_classes == 2


def test_classifier_with_other_depths_is_not_built(tmp_path):
    path = written_classifier(tmp_path / "cls.pt", repeats=(3, 9, 9))
    with pytest.raises(UserError, match="cannot be built: .*layer 4, C3"):
        detector_of_weights(load_weights(path))


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
        ("cls", {"mean": [0.5, 0.5, 0.5]}, r"normalizes images by \[\[0.5, 0.5, 0.5\].*built here"),
        ("cls", {"steps": []}, r"it normalizes images by \[\]"),
        ("cls", {"steps": [None]}, r"it normalizes images by \[\]"),
        ("cls", {"eps": 1e-3}, "layer model.9.conv.bn has eps 0.001; 1e-05 is built here"),
        ("cls", {"without": ["linear"]}, "no linear layer; those of v6.2 and later have one"),
        ("cls", {"repeats": (3, 6)}, "another classifier than those of the public YOLOv5"),
        ("cls", {"conv_stride": (1, 1)}, "another classifier than those of the public YOLOv5"),
    ],
)
def test_file_that_would_compute_differently_is_refused(tmp_path, name, changes, message):
    path = tmp_path / "public.pt"
    written_classifier(path, **changes) if name == "cls" else written(path, drawn(name), **changes)
    with pytest.raises(UserError, match=f"public.pt: .*{message}"):
        load_weights(path)


def test_folded_classifier_is_unfolded_with_its_head_eps():
    """With the running variance 1, the weight of BatchNorm undoes the root of 1 + eps."""
    ones = np.ones(4, np.float32)
    names = ("model.0.conv", "model.1.conv.conv")
    arrays = {f"{name}.{part}": ones for name in names for part in ("weight", "bias")}
    arrays["model.1.linear.weight"] = ones
    unfolded, fused = unfold(arrays)
    assert fused
    assert np.array_equal(unfolded["model.0.bn.weight"], ones * np.float32(np.sqrt(1.001)))
    assert np.array_equal(unfolded["model.1.conv.bn.weight"], ones * np.float32(np.sqrt(1.00001)))
