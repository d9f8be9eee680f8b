"""Public classifiers: described in the size of their layers, since their files have no YAML."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from duet.models.graph import read_model_yaml
from duet.models.stored import detector_of_weights
from duet.utils.errors import UserError
from duet.utils.weights.load import load_weights
from duet.utils.weights.yolov5 import unfold
from tests.foreign_files import Call, TorchFile, module

NN = "torch.nn.modules"
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


class Classifier:
    """The records of a public classifier of 8 channels; changes replace attributes of its parts."""

    def __init__(self, **changes: Any) -> None:
        self.changes, self.file = changes, TorchFile()
        self.strides = changes.get("strides", (2, 2))

    def layer(self, kind: str, modules: Any, **attributes: Any) -> Call:
        return module(f"models.common.{kind}", modules, f=-1, **attributes)

    def conv(self, inputs: int, outputs: int, size: int, eps: float = 1e-3) -> Call:
        tensors = {"weight": self.file.tensor(np.ones((outputs, inputs, size, size), np.float32))}
        norm = {
            name: self.file.tensor(np.ones(outputs, np.float32))
            for name in ("weight", "bias", "running_mean", "running_var")
        }
        norm["num_batches_tracked"] = self.file.tensor(np.zeros((), np.float32))
        parts = {
            "conv": module(f"{NN}.conv.Conv2d", tensors=tensors, stride=self.strides),
            "bn": module(f"{NN}.batchnorm.BatchNorm2d", tensors=norm, eps=eps),
            "act": module(f"{NN}.activation.{self.changes.get('activation', 'SiLU')}"),
        }
        return self.layer("Conv", parts)

    def c3(self, channels: int, bottlenecks: int) -> Call:
        hidden = channels // 2
        inner = {
            str(index): self.layer(
                "Bottleneck",
                {"cv1": self.conv(hidden, hidden, 1), "cv2": self.conv(hidden, hidden, 3)},
            )
            for index in range(bottlenecks)
        }
        parts = {name: self.conv(channels, hidden, 1) for name in ("cv1", "cv2")}
        parts["cv3"] = self.conv(channels, channels, 1)
        return self.layer("C3", {**parts, "m": module(f"{NN}.container.Sequential", inner)})

    def head(self) -> Call:
        shapes = {"weight": (2, 1280), "bias": (2,)}
        own = {name: self.file.tensor(np.ones(s, np.float32)) for name, s in shapes.items()}
        linear = module(f"{NN}.linear.Linear", tensors=own)
        parts = {"conv": self.conv(8, 1280, 1, self.changes.get("eps", 1e-5))}
        return self.layer("Classify", parts | self.changes.get("linear", {"linear": linear}))

    def root(self) -> dict[str, Any]:
        layers = [
            self.conv(3, 8, 6),
            self.conv(8, 8, 3),
            *(
                layer
                for bottlenecks in self.changes.get("bottlenecks", (2, 4, 6))
                for layer in (self.c3(8, bottlenecks), self.conv(8, 8, 3))
            ),
            self.c3(8, 2),
            self.head(),
        ]
        kind = "torchvision.transforms.transforms"
        norm = Call(f"{kind}.Normalize", (), {"mean": MEAN, "std": STD, **self.changes}, True)
        steps = self.changes.get("steps", [Call("utils.augmentations.CenterCrop"), norm])
        root = module(
            "models.yolo.ClassificationModel",
            {
                "model": module(
                    f"{NN}.container.Sequential", {str(i): layer for i, layer in enumerate(layers)}
                )
            },
            names=["cat", "dog"],
            transforms=Call(f"{kind}.Compose", (), {"transforms": steps}, True),
        )
        return {"model": root, "epoch": 3, "best_fitness": 0.75}

    def write(self, path: Path) -> Path:
        return self.file.write_zip(path, self.root())


def test_a_classifier_is_the_public_one_in_the_size_of_its_layers(tmp_path):
    weights = load_weights(Classifier(activation="ReLU").write(tmp_path / "cls.pt"))
    public = read_model_yaml("models/yolov5m-cls.yaml").document
    size = {"depth_multiple": 6 / 9, "width_multiple": 8 / 1024}
    assert weights.header.model == {**public, **size, "nc": 2, "act": "ReLU"}
    assert weights.header.class_names == ("cat", "dog")
    assert weights.header.settings["stored_fitness"] == 0.75
    assert detector_of_weights(weights).head.num_classes == 2


def test_a_classifier_of_other_depths_is_not_built(tmp_path):
    path = Classifier(bottlenecks=(2, 5, 6)).write(tmp_path / "cls.pt")
    with pytest.raises(UserError, match="cannot be built: .*layer 4, C3"):
        detector_of_weights(load_weights(path))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mean": [0.5, 0.5, 0.5]}, r"normalizes images by \[\[0.5, 0.5, 0.5\].*are built here"),
        ({"steps": []}, r"it normalizes images by \[\]"),
        ({"steps": [None]}, r"it normalizes images by \[\]"),
        ({"eps": 1e-3}, "layer model.9.conv.bn has eps 0.001; 1e-05 is built here"),
        ({"linear": {}}, "no linear layer; those of v6.2 and later have one"),
        ({"bottlenecks": (2, 4)}, "it is another classifier than those of the public YOLOv5"),
        ({"strides": (1, 1)}, "it is another classifier than those of the public YOLOv5"),
    ],
)
def test_a_model_that_would_compute_something_else_is_refused(tmp_path, changes, message):
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
