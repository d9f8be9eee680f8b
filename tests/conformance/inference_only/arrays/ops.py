"""`contract.inference.Ops` on arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from backend import checks
from backend.map_cells import cells_of_map


class Tensor(np.ndarray):
    """An array with the names of `contract.Tensor` that NumPy has not."""

    requires_grad = False
    grad = None

    def permute(self, *dims: int) -> Tensor:
        return self.transpose(dims)

    def detach(self) -> Tensor:
        return self


def tensor(array: np.ndarray, device: str = "cpu") -> Tensor:
    checks.known_dtype(array.dtype.name)
    return np.array(array).view(Tensor)


def to_numpy(x: Tensor) -> np.ndarray:
    return np.array(x)


def dtype_of(x: Tensor) -> str:
    return x.dtype.name


def device_of(x: Tensor) -> str:
    return checks.CPU


def cast(x: Tensor, dtype: str) -> Any:
    checks.known_dtype(dtype)
    return x.astype(dtype)


def normalize_images(images: Tensor, dtype: str, channels_last: bool = False) -> Any:
    checks.image_batch(images.shape, dtype_of(images))
    return images.astype(dtype) / np.dtype(dtype).type(255)


def sigmoid(x: Tensor) -> Any:
    return 1 / (1 + np.exp(-x))


def silu(x: Tensor) -> Any:
    return x * sigmoid(x)


def leaky_relu(x: Tensor, slope: float) -> Any:
    return np.where(x > 0, x, x * np.float32(slope)).astype(x.dtype).view(Tensor)


def matmul(x: Tensor, y: Tensor) -> Any:
    checks.matrices(x.shape, y.shape)
    checks.one_dtype(map(dtype_of, (x, y)))
    return x @ y


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    checks.linear_shapes(x.shape, weight.shape, None if bias is None else bias.shape)
    return x @ weight.T + (0 if bias is None else bias)


def softmax(x: Tensor) -> Any:
    powers = np.exp(x - x.max(-1, keepdims=True, initial=-np.inf))
    return powers / powers.sum(-1, keepdims=True)


def cat(tensors: Sequence[Tensor], dim: int = 0) -> Any:
    checks.one_dtype(map(dtype_of, tensors))
    return np.concatenate(tensors, axis=dim).view(Tensor)


def take_rows(x: Tensor, index: Tensor) -> Any:
    checks.row_index(index.shape, dtype_of(index))
    return x[index]


def take_where(x: Tensor, condition: Tensor) -> Any:
    checks.row_condition(condition.shape, dtype_of(condition), x.shape)
    return x[condition]


def upsample_nearest_2x(x: Tensor) -> Any:
    return x.repeat(2, axis=2).repeat(2, axis=3)


def cells(height: int, width: int, like: Tensor) -> Any:
    return tensor(cells_of_map(height, width, dtype_of(like)))


def resize_bilinear(x: Tensor, height: int, width: int) -> Any:
    checks.resized_sides(x.shape, height, width)
    rows, columns = between(x.shape[2], height), between(x.shape[3], width)
    return (rows @ np.asarray(x) @ columns.T).astype(x.dtype).view(Tensor)


def between(old: int, new: int) -> np.ndarray:
    """Return (new, old) weights of the old pixels in each new one."""
    centres = np.clip((np.arange(new) + 0.5) * old / new - 0.5, 0, old - 1)
    return np.maximum(1 - np.abs(centres[:, None] - np.arange(old)), 0)


def flip_columns(x: Tensor) -> Any:
    return x[..., ::-1]


def pad_to(x: Tensor, height: int, width: int, value: float) -> Any:
    checks.padded_sides(x.shape, height, width)
    sides = ((0, 0), (0, 0), (0, height - x.shape[2]), (0, width - x.shape[3]))
    return np.pad(np.asarray(x), sides, constant_values=value).view(Tensor)


def channels_last(x: Tensor) -> Any:
    raise ValueError("arrays have one layout; accepted: tensors as they are")
