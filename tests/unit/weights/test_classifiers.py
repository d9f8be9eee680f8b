"""Public classifiers: described in the size of their layers, since their files have no YAML."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from duet.backend import nn
from duet.models.detector import Detector
from duet.models.graph import parse_model, read_model_yaml
from duet.models.stored import detector_of_weights
from duet.utils.errors import UserError
from duet.utils.weights.load import load_weights
from duet.utils.weights.yolov5 import unfold
from tests.foreign_files import Call, PublicModel, TorchFile

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


def written(path: Path, **changes: Any) -> Path:
    file = TorchFile()
    return file.write_zip(path, small_classifier(file, **changes))


def test_a_classifier_is_the_public_one_in_the_size_of_its_layers(tmp_path):
    weights = load_weights(written(tmp_path / "cls.pt", activation="ReLU"))
    public = read_model_yaml("models/yolov5m-cls.yaml").document
    size = {"depth_multiple": 6 / 9, "width_multiple": 16 / 1024}
    assert weights.header.model == {**public, **size, "nc": 2, "act": "ReLU"}
    assert weights.header.class_names == ("cat", "dog")
    assert weights.header.settings["stored_fitness"] == 0.75
    assert detector_of_weights(weights).head.num_classes == 2


def test_a_classifier_of_other_depths_is_not_built(tmp_path):
    path = written(tmp_path / "cls.pt", repeats=(3, 9, 9))
    with pytest.raises(UserError, match="cannot be built: .*layer 4, C3"):
        detector_of_weights(load_weights(path))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mean": [0.5, 0.5, 0.5]}, r"normalizes images by \[\[0.5, 0.5, 0.5\].*are built here"),
        ({"steps": []}, r"it normalizes images by \[\]"),
        ({"steps": [None]}, r"it normalizes images by \[\]"),
        ({"eps": 1e-3}, "layer model.9.conv.bn has eps 0.001; 1e-05 is built here"),
        ({"without": ["linear"]}, "no linear layer; those of v6.2 and later have one"),
        ({"repeats": (3, 6)}, "it is another classifier than those of the public YOLOv5"),
        ({"conv_stride": (1, 1)}, "it is another classifier than those of the public YOLOv5"),
    ],
)
def test_a_model_that_would_compute_something_else_is_refused(tmp_path, changes, message):
    path = written(tmp_path / "cls.pt", **changes)
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
