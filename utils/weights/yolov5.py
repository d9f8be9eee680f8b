"""The contents of a YOLOv5 file -> float32 arrays, model document, class names and settings.

Before: `reader.py`. After: `utils/weights/load.py::load_weights`. Understood are checkpoints of
pickled models (`ema` is preferred to `model`), pickled models alone, and plain state dicts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from utils.errors import UserError
from utils.weights.contents import Contents, is_tensor
from utils.weights.model_document import check_document
from utils.weights.modules import check_modules, class_name, is_module, module_arrays
from utils.weights.pickle_reader import Record
from utils.weights.plain import plain_numbers, to_plain

MODEL_KEYS = ("ema", "model", "state_dict")  # the first that holds weights is taken
HEAD = "Detect"
DROPPED = ".anchor_grid"  # buffer of files before v6.1, the anchors again in another unit
MAX_CLASSES = 10_000


@dataclass(frozen=True)
class ForeignWeights:
    """What a file of another program gives."""

    file_format: str
    arrays: Mapping[str, np.ndarray]  # floating ones float32, by public name
    stored_dtypes: tuple[str, ...]
    document: Mapping[str, Any]  # the model YAML; {} for a plain state dict
    class_names: tuple[str, ...]  # () where unknown
    strides: tuple[int, ...]
    epoch: int | None  # as stored: index of the last epoch, -1 once training is finished
    hyperparameters: Mapping[str, float]


def read_yolov5(contents: Contents) -> ForeignWeights:
    """Find the weights in the records and everything that belongs to them.

    Raises:
        UserError: no weights in it, or a model that cannot be built here with equal outputs.
    """
    root = contents.root
    holder = root if isinstance(root, dict) else {}
    found = _find_weights(root)
    if is_module(found):
        return _from_module(contents, found, holder)
    stored = {
        name: contents.read_tensor(value)
        for name, value in found.items()
        if isinstance(name, str) and is_tensor(value) and not name.endswith(DROPPED)
    }
    return ForeignWeights(
        file_format=f"{contents.file_format}, plain state dict",
        arrays=_as_float32(stored),
        stored_dtypes=_dtypes(stored),
        document={},
        class_names=_class_names(holder.get("names")),
        strides=(),
        epoch=_epoch(holder),
        hyperparameters=plain_numbers(holder.get("hyp")),
    )


def _find_weights(root: Any) -> Any:
    """Return the record of a module, or a dict of tensors by name."""
    candidates = [root.get(key) for key in MODEL_KEYS] if isinstance(root, dict) else []
    for candidate in (*candidates, root):
        if is_module(candidate):
            return candidate
        if isinstance(candidate, dict) and any(
            isinstance(name, str) and is_tensor(value) for name, value in candidate.items()
        ):
            return candidate
    raise UserError("it holds neither a model under 'ema' or 'model' nor a state dict of tensors")


def _from_module(contents: Contents, model: Record, holder: Mapping[Any, Any]) -> ForeignWeights:
    name = class_name(model)
    document = to_plain(model.state.get("yaml"))
    if not isinstance(document, dict):
        raise UserError(f"its {name} describes no model (attribute yaml); give a detection model")
    check_modules(model)
    stored = {
        key: array
        for key, array in module_arrays(model, contents).items()
        if not key.endswith(DROPPED)
    }
    head, prefix = _find_head(model)
    strides = _strides(contents, head)
    anchors = stored.get(f"{prefix}anchors")
    if anchors is None or anchors.ndim != 3 or len(anchors) != len(strides):
        raise UserError(f"its head has no anchors of shape (levels, A, 2) for strides {strides}")
    pixels = anchors.astype(np.float64) * np.reshape(strides, (-1, 1, 1))
    document["anchors"] = pixels.reshape(len(strides), -1).tolist()
    document["nc"] = head.state.get("nc")
    check_document(document, stored)
    return ForeignWeights(
        file_format=f"{contents.file_format}, {model.kind}",
        arrays=_as_float32(stored),
        stored_dtypes=_dtypes(stored),
        document=document,
        class_names=_class_names(model.state.get("names")),
        strides=strides,
        epoch=_epoch(holder),
        hyperparameters=plain_numbers(model.state.get("hyp") or holder.get("hyp")),
    )


def _find_head(model: Record) -> tuple[Record, str]:
    """Return the last layer and the prefix of its names."""
    layers = model.state["_modules"].get("model")
    children = list(layers.state["_modules"].items()) if is_module(layers) else []
    if not children or class_name(children[-1][1]) != HEAD:
        kind = class_name(children[-1][1]) if children else "none"
        raise UserError(f"its last layer is {kind}; only detection models, with {HEAD}, are read")
    return children[-1][1], f"model.{children[-1][0]}."


def _strides(contents: Contents, head: Record) -> tuple[int, ...]:
    """Return the pixels a cell of each level, from the head's attribute."""
    value = head.state.get("stride")
    strides = contents.read_tensor(value).reshape(-1) if is_tensor(value) else np.zeros(0)
    if not strides.size or not (np.isfinite(strides) & (strides >= 1) & (strides <= 512)).all():
        raise UserError("its head has no strides")
    return tuple(int(stride) for stride in strides)


def _class_names(names: Any) -> tuple[str, ...]:
    """Return the names of a list, or of a dict from 0 on; () for anything else."""
    if isinstance(names, dict):
        names = [names.get(index) for index in range(min(len(names), MAX_CLASSES))]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return ()
    return tuple(names)


def _epoch(holder: Mapping[Any, Any]) -> int | None:
    epoch = holder.get("epoch")
    return epoch if type(epoch) is int else None


def _as_float32(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return floating arrays as float32, also float64; the others as they are."""
    return {
        name: array.astype(np.float32, copy=False) if array.dtype.kind == "f" else array
        for name, array in arrays.items()
    }


def _dtypes(arrays: Mapping[str, np.ndarray]) -> tuple[str, ...]:
    return tuple(sorted({array.dtype.name for array in arrays.values()}))
