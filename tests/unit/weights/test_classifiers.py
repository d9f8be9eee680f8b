"""Public classifiers: described by their layers, since their files have no model YAML."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from duet.utils.errors import UserError
from duet.utils.weights.load import load_weights
from duet.utils.weights.yolov5 import unfold
from tests.foreign_files import Call, TorchFile, module

NN = "torch.nn.modules"
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


class Classifier:
    """The records of a classifier of three layers; changes replace attributes of its parts."""

    def __init__(self, **changes: Any) -> None:
        self.changes, self.file = changes, TorchFile()

    def layer(self, kind: str, modules: Any, **attributes: Any) -> Call:
        return module(f"models.common.{kind}", modules, f=-1, **attributes)

    def conv(self, inputs: int, outputs: int, size: int, eps: float = 1e-3, **own: Any) -> Call:
        tensors = {"weight": self.file.tensor(np.ones((outputs, inputs, size, size), np.float32))}
        sizes = {"kernel_size": (size, size), "padding": (size // 2, size // 2), "stride": (1, 1)}
        attributes = {"out_channels": outputs, "groups": 1, "dilation": (1, 1), **sizes, **own}
        norm = {
            name: self.file.tensor(np.ones(outputs, np.float32))
            for name in ("weight", "bias", "running_mean", "running_var")
        }
        norm["num_batches_tracked"] = self.file.tensor(np.zeros((), np.float32))
        parts = {
            "conv": module(f"{NN}.conv.Conv2d", tensors=tensors, **attributes),
            "bn": module(f"{NN}.batchnorm.BatchNorm2d", tensors=norm, eps=eps),
            "act": module(f"{NN}.activation.{self.changes.get('activation', 'SiLU')}"),
        }
        return self.layer("Conv", parts)

    def c3(self, channels: int) -> Call:
        hidden = channels // 2
        inner = {
            str(index): self.layer(
                "Bottleneck",
                {"cv1": self.conv(hidden, hidden, 1), "cv2": self.conv(hidden, hidden, 3)},
                add=add,
            )
            for index, add in enumerate(self.changes.get("shortcuts", (True, True)))
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
            self.conv(
                3, 8, 6, **{"padding": (2, 2), "stride": (2, 2), **self.changes.get("first", {})}
            ),
            *self.changes.get("inserted", [self.c3(8)]),
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


def test_a_classifier_is_described_by_its_layers(tmp_path):
    weights = load_weights(Classifier().write(tmp_path / "cls.pt"))
    assert weights.header.model == {
        "nc": 2,
        "depth_multiple": 1.0,
        "width_multiple": 1.0,
        "backbone": [[-1, 1, "Conv", [8, 6, 2, 2]], [-1, 2, "C3", [8]]],
        "head": [[-1, 1, "Classify", ["nc"]]],
    }
    assert weights.header.class_names == ("cat", "dog")
    assert weights.header.settings["stored_fitness"] == 0.75


def test_activation_shortcuts_and_groups_are_reported_by_the_layers(tmp_path):
    changes: Any = {"activation": "ReLU", "shortcuts": (False,), "first": {"groups": 4}}
    document = load_weights(Classifier(**changes).write(tmp_path / "cls.pt")).header.model
    assert document["act"] == "ReLU"
    assert document["backbone"] == [[-1, 1, "Conv", [8, 6, 2, 2, 4]], [-1, 1, "C3", [8, False]]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mean": [0.5, 0.5, 0.5]}, r"normalizes images by \[\[0.5, 0.5, 0.5\].*are built here"),
        ({"steps": []}, "its transforms do not normalize images"),
        ({"eps": 1e-3}, "layer model.2.conv.bn has eps 0.001; 1e-05 is built here"),
        ({"linear": {}}, "no linear layer; those of v6.2 and later have one"),
        ({"shortcuts": (True, False)}, "a C3 of 2 bottlenecks, with and without shortcuts"),
        ({"inserted": [module("models.common.GhostConv", f=-1)]}, "layer 1 is 'GhostConv' from -1"),
        ({"inserted": [module("models.common.C3", f=[-1, 4])]}, r"layer 1 is 'C3' from \[-1, 4\]"),
        ({"first": {"stride": (2, 1)}}, r"its Conv2d has stride \(2, 1\); accepted: a number"),
        ({"first": {"dilation": (2, 2)}}, "a dilated convolution"),
    ],
)
def test_what_would_compute_something_else_is_refused(tmp_path, changes, message):
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
