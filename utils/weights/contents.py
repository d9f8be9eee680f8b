"""What every reader of other programs' files returns: inert records, and a reader of tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from utils.weights.pickle_reader import Record
from utils.weights.tensors import StoredArray

TORCH_PARAMETER = "torch._utils._rebuild_parameter"
TORCH_TENSORS = ("torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor")
TORCH_UNTYPED_TENSOR = "torch._utils._rebuild_tensor_v3"
ONEFLOW_TENSORS = ("oneflow.Tensor", "oneflow.nn.Parameter", "oneflow.nn.parameter.Parameter")
TENSOR_KINDS = frozenset((TORCH_PARAMETER, TORCH_UNTYPED_TENSOR, *TORCH_TENSORS, *ONEFLOW_TENSORS))


@dataclass(frozen=True)
class Contents:
    """A file as records."""

    file_format: str  # in words
    root: Any
    read_tensor: Callable[[Record], StoredArray]  # for records that `is_tensor` accepts


def is_tensor(value: Any) -> bool:
    """Return whether a value of the pickle stands for a tensor or a parameter."""
    return isinstance(value, Record) and value.kind in TENSOR_KINDS
