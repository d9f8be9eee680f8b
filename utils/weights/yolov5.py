"""The contents of a YOLOv5 file -> float32 arrays, model document, class names and settings.

Before: `reader.py`. After: `utils/weights/load.py::load_weights`. Understood are checkpoints of
pickled models (`ema` is preferred to `model`), pickled models alone, and plain state dicts; also
inside a DataParallel, and fused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from utils.errors import UserError, brief
from utils.files.json import LARGEST_COUNT
from utils.weights.contents import Contents, StoredArray, is_tensor
from utils.weights.fused import unfold
from utils.weights.modules import (
    check_modules,
    class_name,
    dotted_name,
    is_module,
    module_arrays,
)
from utils.weights.pickle_reader import Record
from utils.weights.plain import plain_numbers, to_plain

MODEL_KEYS = ("ema", "model", "state_dict")  # the first that holds weights is taken
HEAD = "Detect"
DROPPED = ".anchor_grid"  # buffer of files before v6.1, the anchors again in another unit
WRAPPER, WRAPPED = "DataParallel", "module"
MAX_CLASSES = 10_000
MAX_CLASS_NAME = 200  # characters: one long name could stand for each class
MAX_LEVELS, MAX_ANCHORS = 8, 256


@dataclass(frozen=True)
class ForeignWeights:
    """What a file of another program gives."""

    file_format: str
    arrays: Mapping[str, np.ndarray]  # floating ones float32, by public name, none fused
    fused: bool  # whether the file had BatchNorm folded into its convolutions
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
    named = {
        dotted_name("", name): contents.read_tensor(value)
        for name, value in found.items()
        if isinstance(name, str) and is_tensor(value)
    }
    if all(name.startswith(f"{WRAPPED}.") for name in named):
        named = {name.removeprefix(f"{WRAPPED}."): stored for name, stored in named.items()}
    stored = _without_dropped(named)
    arrays, fused = unfold(_as_float32(stored))
    return ForeignWeights(
        file_format=f"{contents.file_format}, plain state dict",
        arrays=arrays,
        fused=fused,
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
        if class_name(candidate) == WRAPPER:
            candidate = candidate.state["_modules"].get(WRAPPED)
        if is_module(candidate):
            return candidate
        if isinstance(candidate, dict) and any(
            isinstance(name, str) and is_tensor(value) for name, value in candidate.items()
        ):
            return candidate
    raise UserError("it holds neither a model under 'ema' or 'model' nor a state dict of tensors")


def _from_module(contents: Contents, model: Record, holder: Mapping[Any, Any]) -> ForeignWeights:
    document = model.state.get("yaml")
    if not isinstance(document, dict):
        raise UserError(
            f"its {class_name(model)} describes no model (attribute yaml); give a detection model "
            "of the public YOLOv5, or its state dict with --cfg (docs/weights.md)"
        )
    check_modules(model, document.get("act"))
    stored = _without_dropped(module_arrays(model, contents))
    head, prefix = _find_head(model)
    strides = _strides(contents, head)
    anchors = _anchors_in_pixels(stored.get(f"{prefix}anchors"), strides)
    document = to_plain({**document, "anchors": anchors, "nc": head.state.get("nc")})
    arrays, fused = unfold(_as_float32(stored))
    return ForeignWeights(
        file_format=f"{contents.file_format}, {model.kind}",
        arrays=arrays,
        fused=fused,
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
        raise UserError(
            f"its last layer is {brief(kind)}; this version builds detection models, with {HEAD}"
        )
    return children[-1][1], f"model.{children[-1][0]}."


def _strides(contents: Contents, head: Record) -> tuple[int, ...]:
    """Return the pixels a cell of each level, from the head's attribute."""
    value = head.state.get("stride")
    strides = contents.read_tensor(value).array.reshape(-1) if is_tensor(value) else np.zeros(0)
    within = np.isfinite(strides) & (strides >= 1) & (strides <= 512)
    if not 1 <= strides.size <= MAX_LEVELS or not within.all():
        raise UserError("its head has no strides")
    return tuple(int(stride) for stride in strides)


def _anchors_in_pixels(stored: StoredArray | None, strides: tuple[int, ...]) -> list[list[float]]:
    """Return the anchors of a head's buffer as a model YAML has them."""
    anchors = np.zeros(0) if stored is None else stored.array
    if anchors.ndim != 3 or len(anchors) != len(strides) or anchors.size > MAX_ANCHORS:
        raise UserError(f"its head has no anchors of shape (levels, A, 2) for strides {strides}")
    pixels = anchors.astype(np.float64) * np.reshape(strides, (-1, 1, 1))
    return pixels.reshape(len(strides), -1).tolist()


def _class_names(names: Any) -> tuple[str, ...]:
    """Return the names of a list, or of a dict from 0 on; () for anything else."""
    if isinstance(names, dict):
        names = [names.get(index) for index in range(min(len(names), MAX_CLASSES))]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return ()
    if len(names) > MAX_CLASSES or any(len(name) > MAX_CLASS_NAME for name in names):
        raise UserError(
            f"it has over {MAX_CLASSES:,} class names, or one of over {MAX_CLASS_NAME} characters"
        )
    return tuple(names)


def _epoch(holder: Mapping[Any, Any]) -> int | None:
    epoch = holder.get("epoch")
    return epoch if type(epoch) is int and -1 <= epoch < LARGEST_COUNT else None


def _without_dropped(stored: Mapping[str, StoredArray]) -> dict[str, StoredArray]:
    return {name: value for name, value in stored.items() if not name.endswith(DROPPED)}


def _as_float32(stored: Mapping[str, StoredArray]) -> dict[str, np.ndarray]:
    """Return floating arrays as float32, also float64; the others as they are."""
    return {
        name: array.astype(np.float32, copy=False) if array.dtype.kind == "f" else array
        for name, (array, _) in stored.items()
    }


def _dtypes(stored: Mapping[str, StoredArray]) -> tuple[str, ...]:
    return tuple(sorted({dtype for _, dtype in stored.values()}))
