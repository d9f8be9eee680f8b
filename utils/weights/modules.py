"""Records of modules -> arrays under the public parameter names, and checks of what they are.

A pickled module of either framework is a class name and a state with the dicts _parameters,
_buffers and _modules.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from duet.utils.activation import DEFAULT_ACTIVATION, NamedActivation, parse_activation
from duet.utils.errors import UserError, brief
from duet.utils.files.json_files import parse_json
from duet.utils.weights.pickle_reader import Record

MAX_NAME = 100  # characters of a dotted name; the public models have up to 40
TENSOR_GROUPS = ("_parameters", "_buffers")
HIDDEN_BUFFERS = "_non_persistent_buffers_set"
BATCHNORM_EPS = 1e-3
CLASSIFIER, CLASSIFIER_EPS = "Classify", 1e-5  # a classifier's last layer keeps the usual eps
NO_ACTIVATION = NamedActivation("Identity")
ATTENTION_HEADS = 4


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


def walk_modules(
    module: Record, prefix: str = "", seen: set[int] | None = None
) -> Iterator[tuple[str, Record]]:
    """Yield (prefix, module) of a module and all inside it, in the order of state_dict().

    The longest name bounds the depth, since each level adds a dot at least.

    Raises:
        UserError: a part with contents is at two places, or a name is too long. So the walk takes
            time linear in the size of the file, even if the file names one part many times.
    """
    seen = set() if seen is None else seen
    for contents in _contents(module):
        if id(contents) in seen:
            raise UserError(f"a module is at two places, one is {brief(prefix)}")
        seen.add(id(contents))
    yield prefix, module
    for name, child in module.state["_modules"].items():
        if isinstance(name, str) and is_module(child):
            yield from walk_modules(child, dotted_name(prefix, name) + ".", seen)


def dotted_name(prefix: str, name: str) -> str:
    """Return the name of a part; UserError for a long one: each part in it would repeat it."""
    if len(prefix) + len(name) > MAX_NAME:
        raise UserError(f"a name of over {MAX_NAME} characters, {brief(prefix + name)}")
    return prefix + name


def _contents(module: Record) -> Iterator[dict | list]:
    """Yield the non-empty groups that a walk reads of a module."""
    for key in ("_modules", *TENSOR_GROUPS, HIDDEN_BUFFERS):
        group = module.state.get(key)
        if isinstance(group, (dict, list)) and group:
            yield group


def module_arrays(module: Record, contents: Contents) -> dict[str, StoredArray]:
    """Return all parameters and persistent buffers of a module by dotted name, as stored."""
    arrays = {}
    for prefix, part in walk_modules(module):
        hidden = part.state.get(HIDDEN_BUFFERS)
        names = {x for x in hidden if isinstance(x, str)} if isinstance(hidden, list) else set()
        for group in TENSOR_GROUPS:
            tensors = part.state.get(group)
            for name, value in tensors.items() if isinstance(tensors, dict) else ():
                if is_tensor(value) and isinstance(name, str) and name not in names:
                    arrays[dotted_name(prefix, name)] = contents.read_tensor(value)
    return arrays


def check_modules(module: Record, activation: Any) -> None:
    """Raise UserError for a module that would compute other outputs here.

    activation: the model YAML's, such as nn.LeakyReLU(0.1); None if it names none.
    """
    wanted = DEFAULT_ACTIVATION if activation is None else parse_activation(activation)
    linear: list[str] = []
    classifier: list[str] = []
    for prefix, part in walk_modules(module):
        where = brief(prefix.removesuffix("."))[1:-1]
        kind = class_name(part)
        if kind == "GhostBottleneck":
            linear.append(f"{prefix}conv.2.")  # its second convolution has no activation
        if kind == CLASSIFIER:
            classifier.append(prefix)
        found = activation_of(part.state["_modules"].get("act"))
        expected = NO_ACTIVATION if prefix.startswith(tuple(linear[-1:])) else wanted
        if expected is not None and found not in (None, expected):
            raise UserError(
                f"layer {where} uses the activation {found}; by its model YAML {expected} is built "
                "here, so the weights would give other outputs; give a model with it, or train one"
            )
        eps, heads = part.state.get("eps"), part.state.get("num_heads")
        built = CLASSIFIER_EPS if prefix.startswith(tuple(classifier[-1:])) else BATCHNORM_EPS
        if kind == "BatchNorm2d" and eps != built:
            raise UserError(f"layer {where} has eps {brief(eps)}; {built} is built here")
        if kind == "MultiheadAttention" and heads != ATTENTION_HEADS:
            raise UserError(
                f"layer {where} has {brief(heads)} heads; {ATTENTION_HEADS} are built here"
            )


def activation_of(module: Any) -> NamedActivation | None:
    """Return the activation of a record; None for another value."""
    if not is_module(module):
        return None
    slope = module.state.get("negative_slope")
    return NamedActivation(class_name(module), slope if isinstance(slope, float) else None)


# Tensors: each declared size is checked before anything is allocated for it.

BFLOAT16 = "bfloat16"
MAX_DIMENSIONS = 8
LARGEST_COUNT = 2**40
BYTES_PER_FILE_BYTE = 2  # tensors may share a storage, but give no more than this
TORCH_PARAMETER = "torch._utils._rebuild_parameter"
TORCH_TENSORS = ("torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor")
TORCH_UNTYPED_TENSOR = "torch._utils._rebuild_tensor_v3"
ONEFLOW_TENSORS = ("oneflow.Tensor", "oneflow.nn.Parameter", "oneflow.nn.parameter.Parameter")
TENSOR_KINDS = frozenset((TORCH_PARAMETER, TORCH_UNTYPED_TENSOR, *TORCH_TENSORS, *ONEFLOW_TENSORS))


class StoredArray(NamedTuple):
    """A tensor of a file."""

    array: np.ndarray  # bfloat16 widened to float32
    dtype: str  # in which the file holds it


@dataclass(frozen=True)
class Contents:
    """A file as records."""

    file_format: str  # in words
    root: Any
    read_tensor: Callable[[Record], StoredArray]  # for records that `is_tensor` accepts


def is_tensor(value: Any) -> bool:
    """Return whether a value of the pickle stands for a tensor or a parameter."""
    return isinstance(value, Record) and value.kind in TENSOR_KINDS


class ByteBudget:
    """The bytes of tensors that a file may still give; a small file must not fill the memory."""

    def __init__(self, file_size: int) -> None:
        self.left = BYTES_PER_FILE_BYTE * file_size

    def spend(self, size: int) -> None:
        self.left -= size
        if self.left < 0:
            raise UserError(f"its tensors hold over {BYTES_PER_FILE_BYTE} times the file's bytes")


def strided_array(
    data: bytes, dtype: str, offset: Any, shape: Any, strides: Any, budget: ByteBudget
) -> StoredArray:
    """Return a copy of the elements that a tensor shows of its storage.

    Args:
        data: the whole storage.
        dtype: a NumPy one, or bfloat16.
        offset: in elements, like the strides; these three come from the file and are checked.
    """
    stored = stored_dtype(dtype)
    # A side of 0 makes a tensor empty, yet NumPy multiplies the others.
    if not (_are_counts(shape) and _are_counts(strides) and _are_counts((offset,))) or (
        math.prod(size or 1 for size in shape) > LARGEST_COUNT
    ):
        raise UserError(
            f"a tensor of shape {brief(shape)}, strides {brief(strides)}, offset {brief(offset)}"
        )
    available = len(data) // stored.itemsize
    count = math.prod(shape)
    last = offset + sum((size - 1) * step for size, step in zip(shape, strides, strict=False))
    if len(shape) != len(strides) or count > available or (count and last >= available):
        raise UserError(
            f"a tensor of shape {list(shape)}, strides {list(strides)}, offset {offset} "
            f"does not fit into its storage of {available} elements"
        )
    budget.spend(count * stored.itemsize)
    array = np.zeros(shape, stored)
    if count:
        steps = [step * stored.itemsize for step in strides]
        array[...] = np.ndarray(shape, stored, data, offset * stored.itemsize, steps)
    if dtype != BFLOAT16:
        return StoredArray(array, stored.name)
    # A bfloat16 is the upper half of a float32.
    return StoredArray((array.astype(np.uint32) << 16).view(np.float32), dtype)


def stored_dtype(dtype: str) -> np.dtype[Any]:
    """Return the NumPy type of an element in a file."""
    return np.dtype("<u2" if dtype == BFLOAT16 else dtype)


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides in elements of a C-order tensor."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def _are_counts(values: Any) -> bool:
    """Return whether this is a short tuple of whole numbers from 0 to `LARGEST_COUNT`."""
    return (
        isinstance(values, tuple)
        and len(values) <= MAX_DIMENSIONS
        and all(type(value) is int and 0 <= value <= LARGEST_COUNT for value in values)
    )


# Plain YAML and JSON values.

MAX_LENGTH = 200_000  # as JSON; a list may hold one list many times, and that one again


def to_plain(value: Any) -> Any:
    """Copy a model description, of dicts, lists, strings, finite numbers, booleans and None.

    Raises:
        UserError: it holds anything else, or is too long.
    """
    text = ""
    try:
        for part in json.JSONEncoder(allow_nan=False).iterencode(value):
            text += part
            if len(text) > MAX_LENGTH:
                raise ValueError(f"over {MAX_LENGTH:,} characters")
        return parse_json(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise UserError(
            f"the model description is too long or too deep, or holds more than text and finite "
            f"numbers: {error}"
        ) from error


def plain_numbers(value: Any) -> dict[str, float]:
    """Return the finite numbers of a dict by name; {} for anything else."""
    if not isinstance(value, dict):
        return {}
    return {
        key: item
        for key, item in value.items()
        if isinstance(key, str) and type(item) in (int, float) and math.isfinite(item)
    }
