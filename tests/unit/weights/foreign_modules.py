"""A detector of this project as modules of the public YOLOv5's names, for a framework to pickle.

The classes are empty: what makes a file one of YOLOv5 is the names, the attributes and the tree.
"""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Mapping
from typing import Any

import numpy as np

YOLO_CLASSES = {
    "models.yolo": ("Model", "DetectionModel", "Detect"),
    "models.common": ("Conv", "Bottleneck", "C3", "SPPF", "SPP", "Focus", "Concat"),
}


class YoloModules:
    """Module trees of a framework, torch or oneflow, built from named arrays."""

    def __init__(self, framework: str, monkeypatch: Any) -> None:
        self.framework = importlib.import_module(framework)
        self.nn = self.framework.nn
        self.classes: dict[str, Any] = {}
        for module_name, names in YOLO_CLASSES.items():
            fake = types.ModuleType(module_name)
            for name in names:
                made = type(name, (self.nn.Module,), {"__module__": module_name})
                setattr(fake, name, made)
                self.classes[name] = made
            monkeypatch.setitem(sys.modules, module_name, fake)

    def model(
        self,
        kind: str,
        arrays: Mapping[str, np.ndarray],
        document: Mapping[str, Any],
        strides: tuple[int, ...],
        **attributes: Any,
    ) -> Any:
        """Return the model as a module of class `kind` with YOLOv5's attributes."""
        lines = [*document["backbone"], *document["head"]]
        layers = self.nn.Sequential()
        for index, line in enumerate(lines):
            prefix = f"model.{index}."
            layer = self.layer(line[2], {
                name.removeprefix(prefix): array
                for name, array in arrays.items() if name.startswith(prefix)
            })  # fmt: skip
            layers.add_module(str(index), layer)
        head = layers[len(lines) - 1]
        head.nc = document["nc"]
        head.stride = self.framework.tensor([float(stride) for stride in strides])
        model = self.classes[kind]()
        model.model = layers
        model.yaml = dict(document)
        for name, value in attributes.items():
            setattr(model, name, value)
        return model

    def layer(self, name: str, arrays: Mapping[str, np.ndarray]) -> Any:
        """Return a module of a class name with the children and tensors that the arrays name."""
        own = self.new(name)
        groups: dict[str, dict[str, np.ndarray]] = {}
        for path, array in arrays.items():
            child, _, rest = path.partition(".")
            if rest:
                groups.setdefault(child, {})[rest] = array
            elif path in ("weight", "bias"):
                own.register_parameter(path, self.nn.Parameter(self.tensor(array)))
            else:
                own.register_buffer(path, self.tensor(array))
        for child, inside in groups.items():
            own.add_module(child, self.layer(self.class_of(child, inside), inside))
        if name == "Conv":
            own.add_module("act", self.nn.SiLU())
        return own

    def class_of(self, child: str, arrays: Mapping[str, np.ndarray]) -> str:
        if "running_mean" in arrays:
            return "BatchNorm2d"
        if "bn.weight" in arrays:
            return "Conv"
        return "Conv2d" if "weight" in arrays else "Sequential"

    def new(self, name: str) -> Any:
        if name in self.classes:
            return self.classes[name]()
        if name == "Conv2d":
            layer = self.nn.Conv2d(1, 1, 1)
        elif name == "BatchNorm2d":
            layer = self.nn.BatchNorm2d(1, eps=1e-3)
        else:
            return self.nn.Sequential()
        layer._parameters.clear()
        layer._buffers.clear()
        return layer

    def tensor(self, array: np.ndarray) -> Any:
        return self.framework.tensor(array)
