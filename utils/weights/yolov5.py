"""The contents of a YOLOv5 file -> float32 arrays, model document, class names and settings.

Understood are checkpoints of pickled models (`ema` is preferred to `model`), pickled models, and
plain state dicts; also inside a DataParallel, and fused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from utils.errors import UserError
from utils.files.json import LARGEST_COUNT
from utils.weights.contents import Contents, StoredArray, is_tensor
from utils.weights.modules import (
    BATCHNORM_EPS,
    CLASSIFIER_EPS,
    check_modules,
    class_name,
    dotted_name,
    is_module,
    module_arrays,
)
from utils.weights.pickle_reader import Record
from utils.weights.plain import plain_numbers
from utils.weights.public_heads import Description, find_head

CONV, NORM = "conv.", "bn."
WEIGHT, BIAS = f"{CONV}weight", f"{CONV}bias"


def unfold(arrays: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], bool]:
    """Return the arrays without folded convolutions, in their order, and whether there were any.

    Args:
        arrays: by public name; NAME.conv.bias without NAME.bn.weight is what folding leaves.
    """
    folded = {
        prefix
        for name in arrays
        if name.endswith(BIAS)
        and (prefix := name.removesuffix(BIAS)) + WEIGHT in arrays
        and f"{prefix}{NORM}weight" not in arrays
    }
    unfolded: dict[str, np.ndarray] = {}
    for name, array in arrays.items():
        prefix = name.removesuffix(BIAS)
        eps = _eps(prefix, arrays)
        unfolded.update(_batchnorm(prefix, array, eps) if prefix in folded else [(name, array)])
    return unfolded, bool(folded)


def _eps(prefix: str, arrays: Mapping[str, np.ndarray]) -> float:
    """Return the eps of the BatchNorm of NAME.conv; a classifier's head has a linear beside it."""
    head = re.fullmatch(r"(model\.\d+\.)conv\.", prefix)
    return CLASSIFIER_EPS if head and f"{head[1]}linear.weight" in arrays else BATCHNORM_EPS


def _batchnorm(prefix: str, bias: np.ndarray, eps: float) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the arrays of a BatchNorm that adds a bias, (C,) float32, and does no more."""
    ones = np.ones_like(bias)
    yield f"{prefix}{NORM}weight", ones * np.float32(np.sqrt(1 + eps))
    yield f"{prefix}{NORM}bias", bias
    yield f"{prefix}{NORM}running_mean", np.zeros_like(bias)
    yield f"{prefix}{NORM}running_var", ones
    yield f"{prefix}{NORM}num_batches_tracked", np.zeros((), np.int64)


MODEL_KEYS = ("ema", "model", "state_dict")  # the first that holds weights is taken
DROPPED = ".anchor_grid"  # buffer of files before v6.1, the anchors again in another unit
WRAPPER, WRAPPED = "DataParallel", "module"
MAX_CLASSES = 10_000
MAX_CLASS_NAME = 200  # characters: one long name could stand for each class
MAX_IMAGE_SIZE = 65_536


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
    hyperparameters: Mapping[str, float]
    training: Training


@dataclass(frozen=True)
class Training:
    """What a file says of the training that it is from, None if it does not."""

    epoch: int | None  # as stored: index of the last epoch, -1 once training is finished
    image_size: int | None
    best_fitness: float | None


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
    description = Description(document={}, strides=())
    return _foreign(contents, _without_dropped(named), description, holder, "plain state dict")


def _foreign(
    contents: Contents,
    stored: Mapping[str, StoredArray],
    description: Description,
    holder: Mapping[Any, Any],
    kind: str,
    own: Mapping[str, Any] | None = None,
) -> ForeignWeights:
    """Return what a file gives: its arrays, and what stands beside them.

    own: attributes of the model, which go before those of the file; None for a state dict.
    """
    arrays, fused = unfold(_as_float32(stored))
    own = holder if own is None else own
    return ForeignWeights(
        file_format=f"{contents.file_format}, {kind}",
        arrays=arrays,
        fused=fused,
        stored_dtypes=tuple(sorted({dtype for _, dtype in stored.values()})),
        document=description.document,
        class_names=_class_names(own.get("names")),
        strides=description.strides,
        hyperparameters=plain_numbers(own.get("hyp") or holder.get("hyp")),
        training=_training(holder),
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
    stored = _without_dropped(module_arrays(model, contents))
    description = find_head(model).describe(model, stored, contents)
    check_modules(model, description.document.get("act"))
    return _foreign(contents, stored, description, holder, model.kind, model.state)


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


def _training(holder: Mapping[Any, Any]) -> Training:
    epoch, best = holder.get("epoch"), holder.get("best_fitness")
    flags = holder.get("opt")
    size = flags.get("imgsz") if isinstance(flags, dict) else None
    return Training(
        epoch if type(epoch) is int and -1 <= epoch < LARGEST_COUNT else None,
        size if type(size) is int and 0 < size <= MAX_IMAGE_SIZE else None,
        best if type(best) is float and 0 <= best < LARGEST_COUNT else None,
    )


def _without_dropped(stored: Mapping[str, StoredArray]) -> dict[str, StoredArray]:
    return {name: value for name, value in stored.items() if not name.endswith(DROPPED)}


def _as_float32(stored: Mapping[str, StoredArray]) -> dict[str, np.ndarray]:
    """Return floating arrays as float32, also float64; the others as they are."""
    return {
        name: array.astype(np.float32, copy=False) if array.dtype.kind == "f" else array
        for name, (array, _) in stored.items()
    }
