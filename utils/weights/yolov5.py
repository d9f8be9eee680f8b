"""Convert the contents of a YOLOv5 file to float32 arrays, model YAML, class names and settings.

Supported are checkpoints of pickled models (`ema` before `model`), pickled models, and plain state
dicts; also in a DataParallel, and fused.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from duet.utils.errors import UserError
from duet.utils.files.json_files import LARGEST_COUNT, Document
from duet.utils.image_limits import MAX_IMAGE_SIZE
from duet.utils.weights.checkpoint import Checkpoint, Header
from duet.utils.weights.modules import (
    BATCHNORM_EPS,
    CLASSIFIER_EPS,
    check_modules,
    class_name,
    dotted_name,
    is_module,
    module_arrays,
)
from duet.utils.weights.public_heads import describe
from duet.utils.weights.tensors import Contents, StoredArray, is_tensor

CONV, NORM = "conv.", "bn."
WEIGHT, BIAS = f"{CONV}weight", f"{CONV}bias"


def unfold(arrays: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], bool]:
    """Return the arrays with BatchNorm restored where it was folded, and whether any was.

    Folding leaves NAME.conv.bias without NAME.bn.weight.
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
    head = re.fullmatch(r"(model\.\d+\.)conv\.", prefix)
    return CLASSIFIER_EPS if head and f"{head[1]}linear.weight" in arrays else BATCHNORM_EPS


def _batchnorm(prefix: str, bias: np.ndarray, eps: float) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the arrays of a BatchNorm that only adds a bias, (C,) float32."""
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


def read_yolov5(contents: Contents, path: str) -> Checkpoint:
    """Return a checkpoint of the records; UserError if our model would give other outputs."""
    root = contents.root
    holder = root if isinstance(root, dict) else {}
    found = _find_weights(root)
    if is_module(found):
        stored = module_arrays(found, contents)
        document, strides = describe(found, stored, contents)
        check_modules(found, document.get("act"))
        kind, own = found.kind, found.state  # its attributes take precedence over the file's
    else:
        stored = _named_tensors(found, contents)
        document, strides = {}, ()
        kind, own = "plain state dict", holder
    stored = {name: value for name, value in stored.items() if not name.endswith(DROPPED)}
    as_float32 = {
        name: array.astype(np.float32, copy=False) if array.dtype.kind == "f" else array
        for name, (array, _) in stored.items()
    }
    arrays, fused = unfold(as_float32)
    flags = holder.get("opt") or holder.get("train_args")
    # As stored: the index of the last epoch, -1 once training is finished.
    epoch = _number_in(holder, "epoch", int, -1, LARGEST_COUNT - 1)
    header = Header(
        model=document,
        class_names=_class_names(own.get("names")),
        epoch=0 if epoch is None else epoch + 1,
        hyperparameters=plain_numbers(own.get("hyp") or holder.get("hyp")),
        settings={
            "converted_from": f"{contents.file_format}, {kind}",
            "stored_dtypes": sorted({dtype for _, dtype in stored.values()}),
            "stored_epoch": epoch,
            "image_size": _number_in(flags, "imgsz", int, 1, MAX_IMAGE_SIZE),
            "stored_fitness": _number_in(holder, "best_fitness", float, 0, LARGEST_COUNT - 1),
            "fused": fused,
            "strides": list(strides),
        },
    )
    return Checkpoint(header, model=arrays, ema=arrays, optimizer={}, path=path)


def _number_in(holder: object, name: str, kind: type, least: int, most: int) -> Any:
    """Return a number from a dict; None if its type or value is wrong, or there is no dict."""
    value: Any = holder.get(name) if isinstance(holder, dict) else None
    has_type = type(value) is kind  # a bool is no int here
    return value if has_type and least <= value <= most else None


def _named_tensors(found: Document, contents: Contents) -> dict[str, StoredArray]:
    named = {
        dotted_name("", name): contents.read_tensor(value)
        for name, value in found.items()
        if isinstance(name, str) and is_tensor(value)
    }
    if all(name.startswith(f"{WRAPPED}.") for name in named):
        return {name.removeprefix(f"{WRAPPED}."): stored for name, stored in named.items()}
    return named


def _find_weights(root: Any) -> Any:
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


def _class_names(names: object) -> tuple[str, ...]:
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


def plain_numbers(value: object) -> dict[str, float]:
    """Return the numbers of a dict, without NaN and huge ones; {} for anything else."""
    return {
        key: item
        for key, item in (value.items() if isinstance(value, dict) else ())
        if isinstance(key, str) and type(item) in (int, float) and abs(item) <= LARGEST_COUNT
    }
