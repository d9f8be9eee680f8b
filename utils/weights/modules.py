"""Records of modules -> arrays under the public parameter names, and checks of what they are.

Before: `torch_archive.py` or `oneflow_folder.py`. After: `yolov5.py`. A pickled module of either
framework is a class name and a state with the dicts _parameters, _buffers and _modules.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from utils.errors import UserError
from utils.weights.contents import Contents, is_tensor
from utils.weights.pickle_reader import Record
from utils.weights.plain import printable

MAX_DEPTH = 24
MAX_MODULES = 20_000
MAX_ENTRIES = 200_000  # of the dicts of all modules; one dict may be that of many
TENSOR_GROUPS = ("_parameters", "_buffers")
HIDDEN_BUFFERS = "_non_persistent_buffers_set"
BATCHNORM_EPS = 1e-3
ACTIVATION = "SiLU"


def class_name(value: Any) -> str:
    """Return the class name of a module's record; '' for anything else."""
    return value.kind.rpartition(".")[2] if is_module(value) else ""


def is_module(value: Any) -> bool:
    """Return whether a value of the pickle stands for a neural network module."""
    return (
        isinstance(value, Record)
        and isinstance(value.state, dict)
        and isinstance(value.state.get("_modules"), dict)
    )


def walk_modules(module: Record) -> Iterator[tuple[str, Record]]:
    """Yield (prefix, module) of a module and all inside it, in the order of state_dict()."""
    waiting = [("", module, 0)]
    seen = entries = 0
    while waiting:
        prefix, current, depth = waiting.pop()
        seen += 1
        entries += _count_entries(current)
        if seen > MAX_MODULES or entries > MAX_ENTRIES or depth > MAX_DEPTH:
            raise UserError("the model has too many modules or is nested too deep")
        yield prefix, current
        children = [
            (f"{prefix}{name}.", child, depth + 1)
            for name, child in current.state["_modules"].items()
            if is_module(child)
        ]
        waiting += reversed(children)


def _count_entries(module: Record) -> int:
    groups = [module.state.get(key) for key in ("_modules", *TENSOR_GROUPS, HIDDEN_BUFFERS)]
    return sum(len(group) for group in groups if isinstance(group, (dict, list)))


def module_arrays(module: Record, contents: Contents) -> dict[str, np.ndarray]:
    """Return all parameters and persistent buffers of a module by dotted name, as stored."""
    arrays = {}
    for prefix, part in walk_modules(module):
        hidden = part.state.get(HIDDEN_BUFFERS)
        for group in TENSOR_GROUPS:
            tensors = part.state.get(group)
            for name, value in tensors.items() if isinstance(tensors, dict) else ():
                if is_tensor(value) and not (isinstance(hidden, list) and name in hidden):
                    arrays[f"{prefix}{name}"] = contents.read_tensor(value)
    return arrays


def check_modules(module: Record) -> None:
    """Raise UserError for a module that would compute something else here."""
    for prefix, part in walk_modules(module):
        name, where = class_name(part), printable(prefix.removesuffix("."))
        activation = class_name(part.state["_modules"].get("act"))
        if activation not in ("", ACTIVATION):
            raise UserError(
                f"layer {where} uses the activation {activation}; only {ACTIVATION} is built here, "
                "so the weights would give other outputs"
            )
        eps = part.state.get("eps")
        if name == "BatchNorm2d" and eps != BATCHNORM_EPS:
            raise UserError(f"layer {where} has eps {eps!r:.20}; {BATCHNORM_EPS} is built here")
        if name == "Conv" and "bn" not in part.state["_modules"]:
            raise UserError(
                f"layer {where} has its BatchNorm folded in; give the checkpoint before fusing"
            )
