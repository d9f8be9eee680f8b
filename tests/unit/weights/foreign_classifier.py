"""Records of public classifiers, as their training pickles them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

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
