"""Tensor functions for OneFlow; documented in `contract.Ops`.

Where OneFlow 0.9 would abort the process or return a value or dtype that breaks the contract, the
arguments are checked first or the result is computed another way.
"""

import functools
import math
import operator
from collections.abc import Callable, Sequence

import numpy as np
import oneflow
from oneflow import Tensor
from oneflow.nn import functional

from duet.backend import checks
from duet.backend.oneflow.device import present, synchronize

Shape = Sequence[int]
# `index_add_` takes as long for a row as adding a zero to this many.
ZEROS_PER_ROW = 16

DTYPES = {
    "float32": oneflow.float32,
    "float64": oneflow.float64,
    "int64": oneflow.int64,
    "uint8": oneflow.uint8,
    "bool": oneflow.bool,
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}


def tensor(array: np.ndarray, device: str = "cpu") -> Tensor:
    dtype = dtype_named(array.dtype.name)
    # OneFlow ignores the byte order.
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    # Copies; `from_numpy` would alias the array while the ops that read it are still queued.
    return oneflow.tensor(native, dtype=dtype, device=present(device))


def to_numpy(x: Tensor) -> np.ndarray:
    return to_numpy_later(x)()


def to_numpy_later(x: Tensor) -> Callable[[], np.ndarray]:
    array = np.empty(tuple(x.shape), dtype_of(x))
    if array.size == 0:
        return lambda: array
    # `Tensor.numpy()` waits for the scheduler on a busy CPU, up to 4.6 ms even for small tensors.
    # Queueing a copy and waiting for it takes at most 0.09 ms.
    oneflow.from_numpy(array).copy_(x.detach().cpu())
    device = device_of(x)

    def read() -> np.ndarray:
        synchronize(device)
        return array

    return read


def is_one(lost: Tensor | None) -> bool:
    """Wait for an optional 0-d tensor and return whether it is 1."""
    return lost is not None and bool(to_numpy(lost) == 1.0)


def dtype_of(x: Tensor) -> str:
    return NAMES[x.dtype]


def device_of(x: Tensor) -> str:
    # OneFlow numbers the CPU by process rank.
    return checks.CPU if x.device.type == "cpu" else str(x.device)


def cast(x: Tensor, dtype: str) -> Tensor:
    return x.to(dtype_named(dtype))


def normalize_images(images: Tensor, dtype: str, channels_last: bool = False) -> Tensor:
    checks.image_batch(images.shape, dtype_of(images))
    checks.known_dtype(dtype, checks.FLOAT_DTYPES)
    if channels_last:
        raise ValueError("OneFlow 0.9 has no channels_last layout; accepted: channels_last=False")
    return images.to(dtype_named(dtype)) / 255.0


def zeros(shape: Shape, dtype: str = "float32", device: str = "cpu") -> Tensor:
    return full(shape, 0, dtype, device)


def full(shape: Shape, value: float, dtype: str = "float32", device: str = "cpu") -> Tensor:
    dtype_named(dtype)
    checks.sizes(shape)
    # Created in NumPy because `oneflow.full` fails for a 0-d shape.
    return tensor(np.full(tuple(shape), value, dtype), device)


def atan(x: Tensor) -> Tensor:
    return oneflow.atan(x)


def sigmoid(x: Tensor) -> Tensor:
    return oneflow.sigmoid(x)


def silu(x: Tensor) -> Tensor:
    # On a CPU this is twice as fast as OneFlow's own kernel.
    return functional.silu(x) if x.is_cuda else x * oneflow.sigmoid(x)


def leaky_relu(x: Tensor, slope: float) -> Tensor:
    return functional.leaky_relu(x, checks.as_float32(slope))


def matmul(x: Tensor, y: Tensor) -> Tensor:
    checks.matrices(x.shape, y.shape)
    checks.one_dtype(map(dtype_of, (x, y)))
    if 0 in (x.numel(), y.numel()):
        # OneFlow aborts the process for empty products; empty sums have the same values, shape and
        # gradients.
        return sum(x, -1, True) + sum(y, -2, True)
    return oneflow.matmul(x, y)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    checks.linear_shapes(x.shape, weight.shape, None if bias is None else bias.shape)
    rows = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    y = matmul(rows, weight.permute(1, 0)).reshape(*x.shape[:-1], weight.shape[0])
    if bias is None:
        return y
    checks.one_dtype(map(dtype_of, (y, bias)))
    return y + bias


def softmax(x: Tensor) -> Tensor:
    # OneFlow's kernel aborts the process for empty rows.
    return functional.softmax(x, -1) if x.numel() else x * 1.0


def clamp(x: Tensor, low: float | None = None, high: float | None = None) -> Tensor:
    return oneflow.clamp(x, low, high)


def minimum(x: Tensor, y: Tensor) -> Tensor:
    return _keep_nan(oneflow.minimum(x, y), x, y)


def maximum(x: Tensor, y: Tensor) -> Tensor:
    return _keep_nan(oneflow.maximum(x, y), x, y)


def where(condition: Tensor, x: Tensor | float, y: Tensor | float) -> Tensor:
    tensors = [value for value in (x, y) if isinstance(value, Tensor)]
    if len(tensors) == 2:
        checks.one_dtype(map(dtype_of, tensors))
    dtype = dtype_of(tensors[0]) if tensors else "float32"

    # Python numbers would make the result float64.
    def as_tensor(value: Tensor | float) -> Tensor:
        return value if isinstance(value, Tensor) else full((), value, dtype, device_of(condition))

    x, y = as_tensor(x), as_tensor(y)
    if 0 in (condition.numel(), x.numel(), y.numel()):
        # `oneflow.where` aborts the process when broadcasting to an empty shape; a sum does not.
        return condition.to(x.dtype) + x + y
    return oneflow.where(condition, x, y)


def sum(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    return oneflow.sum(x, _dims(x, dim), keepdim)


def mean(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    averaged = x.numel() if dim is None else x.shape[dim]
    # `oneflow.mean` returns 0 if empty; the contract promises NaN.
    if averaged == 0:
        return sum(x, dim, keepdim) / 0.0
    return oneflow.mean(x, _dims(x, dim), keepdim)


def amax(x: Tensor, dim: int) -> Tensor:
    checks.not_empty(x.shape, dim)
    # OneFlow's kernel skips NaN; a sum does not.
    has_nan = sum(cast(x != x, "float32"), dim) > 0
    return where(has_nan, sum(x, dim), oneflow.amax(x, dim))


def top_k(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    checks.largest(x.shape, k)
    values, columns = oneflow.topk(x.detach(), k, dim=1)
    return values, columns


def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    return _join(oneflow.cat, tensors, dim)


def stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    return _join(oneflow.stack, tensors, dim)


def take_rows(x: Tensor, index: Tensor) -> Tensor:
    _check_rows(x, index)
    return x[index]


def take_rows_and_column(x: Tensor, index: Tensor, column: int) -> tuple[Tensor, Tensor]:
    return take_rows(x, index), x[:, column]


def put_rows(x: Tensor, index: Tensor, values: Tensor) -> Tensor:
    _check_rows(x, index)
    rows = (len(index), *x.shape[1:])
    checks.row_values(values.shape, dtype_of(values), rows, dtype_of(x))
    return oneflow._C.tensor_scatter_nd_update(x, index.reshape(-1, 1), values)


def put_largest(x: Tensor, index: Tensor, values: Tensor) -> Tensor:
    _check_rows(x, index)
    checks.row_values(values.shape, dtype_of(values), (len(index),), dtype_of(x))
    found = to_numpy(x)
    with np.errstate(invalid="ignore"):  # NaN
        np.maximum.at(found, to_numpy(index), to_numpy(values))
    return tensor(found, device_of(x))


def repeated(counts: np.ndarray, device: str = "cpu") -> Tensor:
    return tensor(np.repeat(np.arange(len(counts)), counts), device)


def add_rows_(x: Tensor, index: Tensor, values: Tensor) -> None:
    _check_rows(x, index)
    checks.row_values(values.shape, dtype_of(values), (len(index), *x.shape[1:]), dtype_of(x))
    with oneflow.no_grad():
        if not x.is_cuda and len(index) > len(x) // ZEROS_PER_ROW:
            x.add_(oneflow._C.unsorted_segment_sum(values, index, 0, len(x)))
        elif len(index):
            oneflow._C.index_add_(x, 0, index, values, 1.0)


def upsample_nearest_2x(x: Tensor) -> Tensor:
    if x.is_cuda:
        return functional.interpolate(x, scale_factor=2.0, mode="nearest")
    # On a CPU, repeating columns, then rows, is ten times as fast as OneFlow's own kernel.
    batch, channels, height, width = x.shape
    columns = stack((x, x), 4).reshape(batch, channels, height, 2 * width)
    return cat((columns, columns), 3).reshape(batch, channels, 2 * height, 2 * width)


def arange(count: int, dtype: str = "int64", device: str = "cpu") -> Tensor:
    checks.sizes((count,))
    checks.known_dtype(dtype)
    return tensor(np.arange(count).astype(dtype), device)


def cells(height: int, width: int, like: Tensor) -> Tensor:
    pairs = np.stack(np.meshgrid(np.arange(width), np.arange(height)), axis=-1)
    return tensor(pairs[None, None].astype(dtype_of(like)), device_of(like))


def resize_bilinear(x: Tensor, height: int, width: int) -> Tensor:
    checks.resized_sides(x.shape, height, width)
    return functional.interpolate(x, (height, width), mode="bilinear", align_corners=False)


def flip_columns(x: Tensor) -> Tensor:
    return oneflow.flip(x, [3])


def pad_to(x: Tensor, height: int, width: int, value: float) -> Tensor:
    checks.padded_sides(x.shape, height, width)
    return functional.pad(x, (0, width - x.shape[3], 0, height - x.shape[2]), value=value)


def channels_last(x: Tensor) -> Tensor:
    raise ValueError("OneFlow 0.9 has no channels_last layout; accepted: tensors as they are")


def bce_with_logits(logits: Tensor, target: Tensor, positive_weight: float = 1.0) -> Tensor:
    return _cross_entropy(logits, target, positive_weight, "mean")


def bce_terms(logits: Tensor, target: Tensor, positive_weight: float = 1.0) -> Tensor:
    return _cross_entropy(logits, target, positive_weight, "none").reshape(*logits.shape)


def log_softmax(x: Tensor) -> Tensor:
    return oneflow.log_softmax(x, -1)


def restore_(values: Sequence[Tensor], others: Sequence[Tensor], lost: Tensor) -> None:
    checks.equal_counts(len(others), len(values), "others")
    if not is_one(lost):
        return
    for value, other in zip(values, others, strict=True):
        array = to_numpy(value)
        if not np.isfinite(array).all():
            kept = np.where(np.isfinite(array), array, to_numpy(other))
            value.detach().copy_(tensor(np.asarray(kept), device_of(value)))


def take_at(x: Tensor, places: Sequence[np.ndarray]) -> Tensor:
    checks.row_places(places, x.shape)
    if x.numel() == 0:
        return zeros((len(places[0]), *x.shape[len(places) :]), dtype_of(x), device_of(x))
    if x.is_cuda:
        return x[tuple(tensor(index, device_of(x)) for index in places)]
    # On a CPU, indexing first copies a permuted tensor: 0.5 s for the raw maps of a batch. With its
    # dimensions ordered by stride it is flat, and single elements can be gathered from it.
    strides = x.stride()
    order = sorted(range(x.ndim), key=lambda dim: -strides[dim])
    shape = [x.shape[dim] for dim in order]
    step = {dim: math.prod(shape[at + 1 :]) for at, dim in enumerate(order)}
    position: np.ndarray = np.zeros(1, np.int64)
    for dim, index in enumerate(places):
        position = position + index * step[dim]
    for dim in range(len(places), x.ndim):
        position = position[..., None] + np.arange(x.shape[dim]) * step[dim]
    taken = x.permute(*order).reshape(-1)[tensor(position.reshape(-1), device_of(x))]
    return taken.reshape(*position.shape)


def _cross_entropy(
    logits: Tensor, target: Tensor, positive_weight: float, reduction: str
) -> Tensor:
    """Return it reduced, or elementwise in any shape with the same number of elements."""
    checks.same_shape(logits.shape, target.shape)
    # With a weight, OneFlow's kernel aborts the process for 0-d or empty logits.
    if positive_weight == 1.0 or logits.numel() == 0:
        return functional.binary_cross_entropy_with_logits(
            logits, target.detach(), reduction=reduction
        )
    # What is detached of a part of a tensor is reshaped as if the part began at the tensor's first
    # value.
    target = target.reshape(-1).detach()
    weight = full((1,), positive_weight, dtype_of(logits), device_of(logits))
    return functional.binary_cross_entropy_with_logits(
        logits.reshape(-1), target, pos_weight=weight, reduction=reduction
    )


def dtype_named(name: str) -> oneflow.dtype:
    """Return the framework's dtype; ValueError for a name outside the promised ones."""
    checks.known_dtype(name)
    return DTYPES[name]


def _keep_nan(found: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Return OneFlow's result for x and y, but NaN where either is NaN, with both gradients.

    Its kernels compute `x < y ? x : y`, which ignores NaN in x.
    """
    return where((x != x) | (y != y), x + y, found)


def _dims(x: Tensor, dim: int | None) -> list[int]:
    return list(range(x.ndim)) if dim is None else [dim]


def _join(
    function: Callable[[list[Tensor], int], Tensor], tensors: Sequence[Tensor], dim: int
) -> Tensor:
    checks.one_dtype(map(dtype_of, tensors))
    joined = function(list(tensors), dim)
    if joined.numel() > 0 or not joined.requires_grad:
        return joined
    # The backward pass of joined empty tensors aborts the process; that of their sum does not.
    parts = [x.reshape(*joined.shape) for x in tensors]
    return functools.reduce(operator.add, parts)


def _check_rows(x: Tensor, index: Tensor) -> None:
    checks.row_index(index.shape, dtype_of(index))
    if not index.is_cuda and index.numel() > 0:
        rows = to_numpy(index)
        checks.rows_in_range(int(rows.min()), int(rows.max()), x.shape[0])
