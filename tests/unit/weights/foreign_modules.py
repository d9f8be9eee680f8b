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

from tests.foreign_files import Call, PublicModel


class YoloModules:
    """Module trees of a framework, torch or oneflow, as `PublicModel` describes them."""

    def __init__(self, framework: str, monkeypatch: Any) -> None:
        self.framework, self.monkeypatch = importlib.import_module(framework), monkeypatch
        self.places: dict[str, Any] = {}

    def model(
        self, arrays: Mapping[str, np.ndarray], document: Mapping[str, Any], **changes: Any
    ) -> Any:
        return self.module(PublicModel(self.framework, arrays, document, **changes).root())

    def module(self, record: Call) -> Any:
        own = self.empty(record.name)
        state = {**record.state, "_parameters": {}}
        for name, tensor in state.pop("_buffers").items():
            if name in ("weight", "bias"):
                own.register_parameter(name, self.framework.nn.Parameter(tensor))
            else:
                own.register_buffer(name, tensor)
        for name, child in state.pop("_modules").items():
            own.add_module(name, self.module(child))
        for name in state.keys() - {"_parameters"}:
            setattr(own, name, state[name])
        return own

    def empty(self, name: str) -> Any:
        """Return a module without tensors, of the framework or of `yolo_class`."""
        if name.startswith("models."):
            return self.yolo_class(name)()
        kind = getattr(self.framework.nn, name.rpartition(".")[2])
        module = kind(*{"Conv2d": (1, 1, 1), "BatchNorm2d": (1,)}.get(kind.__name__, ()))
        module._parameters.clear()
        module._buffers.clear()
        return module

    def yolo_class(self, name: str) -> Any:
        """Return the class of a name such as models.common.Conv, which pickle can import."""
        place, _, own = name.rpartition(".")
        if place not in self.places:
            self.places[place] = types.ModuleType(place)
            self.monkeypatch.setitem(sys.modules, place, self.places[place])
        made = type(own, (self.framework.nn.Module,), {"__module__": place})
        return vars(self.places[place]).setdefault(own, made)
