"""Tensors of a pickle -> NumPy arrays; a declared size is checked before anything is allocated."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from duet.utils.errors import UserError, brief
from duet.utils.weights.pickle_reader import Record

BFLOAT16 = "bfloat16"
MAX_DIMENSIONS = 8
LARGEST_COUNT = 2**40
BYTES_PER_FILE_BYTE = 2  # more than 1, because tensors may share a storage
TORCH_PARAMETER = "torch._utils._rebuild_parameter"
TORCH_TENSORS = ("torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor")
TORCH_UNTYPED_TENSOR = "torch._utils._rebuild_tensor_v3"
ONEFLOW_TENSORS = ("oneflow.Tensor", "oneflow.nn.Parameter", "oneflow.nn.parameter.Parameter")
TENSOR_KINDS = frozenset((TORCH_PARAMETER, TORCH_UNTYPED_TENSOR, *TORCH_TENSORS, *ONEFLOW_TENSORS))


class StoredArray(NamedTuple):
    array: np.ndarray  # bfloat16 widened to float32
    dtype: str  # dtype in the file


@dataclass(frozen=True)
class Contents:
    file_format: str  # in words
    root: object
    read_tensor: Callable[[Record], StoredArray]  # for records that `is_tensor` accepts


def is_tensor(value: object) -> bool:
    return isinstance(value, Record) and value.kind in TENSOR_KINDS


class ByteBudget:
    """Limits the bytes of all tensors, so that a small file cannot fill the memory."""

    def __init__(self, file_size: int) -> None:
        self.left = BYTES_PER_FILE_BYTE * file_size

    def spend(self, size: int) -> None:
        self.left -= size
        if self.left < 0:
            raise UserError(f"its tensors hold over {BYTES_PER_FILE_BYTE} times the file's bytes")


def strided_array(
    data: bytes, dtype: str, offset: Any, shape: Any, strides: Any, budget: ByteBudget
) -> StoredArray:
    """Copy a tensor from its storage; offset, shape and strides are unchecked, in elements.

    dtype: a NumPy one, or bfloat16.
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
    return np.dtype("<u2" if dtype == BFLOAT16 else dtype)


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def _are_counts(values: object) -> bool:
    return (
        isinstance(values, tuple)
        and len(values) <= MAX_DIMENSIONS
        and all(type(value) is int and 0 <= value <= LARGEST_COUNT for value in values)
    )
