"""Tensor functions for PyTorch; documented in `contract.Ops`."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from duet.backend import checks
from duet.backend.checks import CPU
from duet.backend.devices import MPS
from duet.backend.torch.device import copy_from_gpu, copy_to_gpu, has_streams, present

Shape = Sequence[int]

# Measured on 2.14.1: the gradient of its clamp is 0 at the limits, where the contract's is 1.
CLAMP_ENDS_AT_LIMITS = torch.__version__ >= "2.14"

DTYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "int64": torch.int64,
    "uint8": torch.uint8,
    "bool": torch.bool,
}
# Half precision arises only inside `amp.autocast`: named here, but no function creates it.
HALF_DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}
HALF_PRECISIONS = tuple(HALF_DTYPES.values())
NAMES = {dtype: name for name, dtype in {**DTYPES, **HALF_DTYPES}.items()}


def tensor(array: np.ndarray, device: str = "cpu") -> Tensor:
    dtype = dtype_named(array.dtype.name)
    where = present(device)
    if has_streams(where):
        return copy_to_gpu(array, dtype, where)
    # A copy in native order: PyTorch reads neither negative strides nor swapped bytes.
    copied = np.array(array, dtype=array.dtype.newbyteorder("="), order="C")
    return torch.from_numpy(copied).to(where, dtype)


def to_numpy(x: Tensor) -> np.ndarray:
    return x.detach().to("cpu", copy=True).numpy()


def to_numpy_later(x: Tensor) -> Callable[[], np.ndarray]:
    if reads_at_once(x):
        copied = to_numpy(x)
        return lambda: copied
    if has_streams(x.device):
        return copy_from_gpu(x.detach())
    kept = x.detach().clone()
    return lambda: to_numpy(kept)


def reads_at_once(x: Tensor) -> bool:
    """Return whether the host can read a tensor without waiting: CPUs queue nothing."""
    return x.device.type == CPU


def dtype_of(x: Tensor) -> str:
    return NAMES[x.dtype]


def device_of(x: Tensor) -> str:
    return MPS if x.device.type == MPS else str(x.device)  # of which there is one


def cast(x: Tensor, dtype: str) -> Tensor:
    return x.to(dtype_named(dtype))


def normalize_images(images: Tensor, dtype: str, channels_last: bool = False) -> Tensor:
    checks.image_batch(images.shape, dtype_of(images))
    checks.known_dtype(dtype, checks.FLOAT_DTYPES)
    layout = torch.channels_last if channels_last else torch.contiguous_format
    normalized = torch.empty(
        images.shape, dtype=dtype_named(dtype), device=images.device, memory_format=layout
    )
    if images.device.type != CPU and dtype == "float32":
        torch.div(images, 255.0, out=normalized)  # one kernel, which computes in float32
        return normalized
    # Cast and reorder in one pass over the bytes.
    return normalized.copy_(images).div_(255.0)


def zeros(shape: Shape, dtype: str = "float32", device: str = "cpu") -> Tensor:
    checks.sizes(shape)
    return torch.zeros(tuple(shape), dtype=dtype_named(dtype), device=present(device))


def full(shape: Shape, value: float, dtype: str = "float32", device: str = "cpu") -> Tensor:
    checks.sizes(shape)
    return torch.full(tuple(shape), value, dtype=dtype_named(dtype), device=present(device))


def atan(x: Tensor) -> Tensor:
    return torch.atan(x)


def sigmoid(x: Tensor) -> Tensor:
    return torch.sigmoid(x)


def silu(x: Tensor) -> Tensor:
    return functional.silu(x)


def leaky_relu(x: Tensor, slope: float) -> Tensor:
    return functional.leaky_relu(x, checks.as_float32(slope))


def matmul(x: Tensor, y: Tensor) -> Tensor:
    checks.matrices(x.shape, y.shape)
    _check_one_dtype(x, y)
    return torch.matmul(x, y)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    checks.linear_shapes(x.shape, weight.shape, None if bias is None else bias.shape)
    _check_one_dtype(x, weight, *([] if bias is None else [bias]))
    return functional.linear(x, weight, bias)


def softmax(x: Tensor) -> Tensor:
    return torch.softmax(x, -1)


def clamp(x: Tensor, low: float | None = None, high: float | None = None) -> Tensor:
    if not CLAMP_ENDS_AT_LIMITS:
        return torch.clamp(x, low, high)
    x = x if low is None else torch.where(x < low, low, x)
    return x if high is None else torch.where(x > high, high, x)


def minimum(x: Tensor, y: Tensor) -> Tensor:
    return torch.minimum(x, y)


def maximum(x: Tensor, y: Tensor) -> Tensor:
    return torch.maximum(x, y)


def where(condition: Tensor, x: Tensor | float, y: Tensor | float) -> Tensor:
    tensors = [value for value in (x, y) if isinstance(value, Tensor)]
    if len(tensors) == 2:
        checks.one_dtype(map(dtype_of, tensors))
    dtype = tensors[0].dtype if tensors else torch.float32

    # A number needs no tensor on the device, which would be one more launch.
    kind = float if dtype.is_floating_point else int
    x, y = (value if isinstance(value, Tensor) else kind(value) for value in (x, y))
    return torch.where(condition, x, y).to(dtype)


def sum(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    return torch.sum(x, dim, keepdim)


def mean(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    return torch.mean(x, dim, keepdim)


def amax(x: Tensor, dim: int) -> Tensor:
    checks.not_empty(x.shape, dim)
    return torch.amax(x, dim)


def top_k(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    checks.largest(x.shape, k)
    values, columns = torch.topk(x.detach(), k, dim=1)
    return values, columns


def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    checks.one_dtype(map(dtype_of, tensors))
    trains = any(x.requires_grad for x in tensors)
    if trains and dim == 1 and all(map(_is_channels_last_on_cpu, tensors)):
        return _JoinedChannels.apply(*tensors)
    return torch.cat(list(tensors), dim)


def stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    checks.one_dtype(map(dtype_of, tensors))
    return torch.stack(list(tensors), dim)


def take_rows(x: Tensor, index: Tensor) -> Tensor:
    _check_rows(x, index)
    if x.device.type != CPU:
        return x[index]  # not index_select: its gradient is not deterministic on CUDA
    # On a CPU the gradient of x[index] is not: threads add large ones in any order. That of
    # index_select is, unless compiled.
    places = index.reshape(-1, *[1] * (x.ndim - 1)).expand(-1, *x.shape[1:])
    return x.gather(0, places)


def take_rows_and_column(x: Tensor, index: Tensor, column: int) -> tuple[Tensor, Tensor]:
    if torch.compiler.is_compiling():  # the compiler fuses the plain operations
        full = x.float() if x.dtype in HALF_PRECISIONS else x
        return take_rows(full, index).to(x.dtype), full[:, column]
    return _RowsAndColumn.apply(x, index, column)


def put_rows(x: Tensor, index: Tensor, values: Tensor) -> Tensor:
    _check_rows(x, index)
    rows = (len(index), *x.shape[1:])
    checks.row_values(values.shape, dtype_of(values), rows, dtype_of(x))
    return x.index_put((index,), values)


def put_largest(x: Tensor, index: Tensor, values: Tensor) -> Tensor:
    _check_rows(x, index)
    checks.row_values(values.shape, dtype_of(values), (len(index),), dtype_of(x))
    return x.detach().scatter_reduce(0, index, values.detach(), "amax")


def repeated(counts: np.ndarray, device: str = "cpu") -> Tensor:
    return torch.repeat_interleave(tensor(counts, device), output_size=int(counts.sum()))


def add_rows_(x: Tensor, index: Tensor, values: Tensor) -> None:
    _check_rows(x, index)
    checks.row_values(values.shape, dtype_of(values), (len(index), *x.shape[1:]), dtype_of(x))
    changed, added = x.detach(), values.detach()
    if x.device.type == CPU:
        changed.index_add_(0, index, added)
    else:  # as in `take_rows`: index_add_ is not deterministic on CUDA
        changed.index_put_((index,), added, accumulate=True)


def upsample_nearest_2x(x: Tensor) -> Tensor:
    batch, channels, height, width = x.shape
    # PyTorch's CPU kernel is slow unless the output is larger or x is channels last. Repeating
    # columns, then rows, is two to five times as fast, including backward.
    if x.device.type == checks.CPU and x.is_contiguous() and 2 * (height + width) <= 128:
        columns = torch.stack((x, x), 4).reshape(batch, channels, height, 2 * width)
        return torch.cat((columns, columns), 3).reshape(batch, channels, 2 * height, 2 * width)
    if not torch.is_autocast_enabled(x.device.type):
        return functional.interpolate(x, scale_factor=2.0, mode="nearest")
    # On a GPU, autocast would convert half precision to float32, though values are only copied.
    with torch.autocast(x.device.type, enabled=False):
        return functional.interpolate(x, scale_factor=2.0, mode="nearest")


def arange(count: int, dtype: str = "int64", device: str = "cpu") -> Tensor:
    checks.sizes((count,))
    return torch.arange(count, dtype=dtype_named(dtype), device=present(device))


def cells(height: int, width: int, like: Tensor) -> Tensor:
    pairs = np.stack(np.meshgrid(np.arange(width), np.arange(height)), axis=-1)
    return tensor(pairs[None, None].astype(dtype_of(like)), device_of(like))


def resize_bilinear(x: Tensor, height: int, width: int) -> Tensor:
    checks.resized_sides(x.shape, height, width)
    return functional.interpolate(x, (height, width), mode="bilinear", align_corners=False)


def flip_columns(x: Tensor) -> Tensor:
    return x.flip(3)


def pad_to(x: Tensor, height: int, width: int, value: float) -> Tensor:
    checks.padded_sides(x.shape, height, width)
    return functional.pad(x, (0, width - x.shape[3], 0, height - x.shape[2]), value=value)


def channels_last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)


def bce_with_logits(logits: Tensor, target: Tensor, positive_weight: float = 1.0) -> Tensor:
    return _cross_entropy(logits, target, positive_weight, "mean")


def bce_terms(logits: Tensor, target: Tensor, positive_weight: float = 1.0) -> Tensor:
    return _cross_entropy(logits, target, positive_weight, "none")


def log_softmax(x: Tensor) -> Tensor:
    return torch.log_softmax(x, -1)


def restore_(values: Sequence[Tensor], others: Sequence[Tensor], lost: Tensor) -> None:
    checks.equal_counts(len(others), len(values), "others")
    if not values:
        return
    with torch.no_grad():  # concatenated: a few launches instead of some per tensor
        present, other = (
            torch.cat([x if x.ndim == 1 else x.reshape(-1) for x in xs]) for xs in (values, others)
        )
        stays = (present * 0.0 == 0.0).logical_or_(lost == 0.0)
        parts = torch.where(stays, present, other).split([x.numel() for x in values])
        # Flat tensors need no view: on the host even a view takes as long as a launch.
        shaped = [y if x.ndim == 1 else y.view(x.shape) for x, y in zip(values, parts, strict=True)]
        torch._foreach_copy_(list(values), shaped)


def take_at(x: Tensor, places: Sequence[np.ndarray]) -> Tensor:
    checks.row_places(places, x.shape)
    return x[tuple(tensor(index, device_of(x)) for index in places)]


def _is_channels_last_on_cpu(x: Tensor) -> bool:
    if x.device.type != CPU or x.ndim != 4 or x.is_contiguous() or torch.compiler.is_compiling():
        return False
    return x.is_contiguous(memory_format=torch.channels_last)


class _JoinedChannels(torch.autograd.Function):
    """`torch.cat` of channels-last maps whose gradients are copies, not views of a wider map.

    In such a view the channels of a cell are a short stretch of memory, and operations take up to
    ten times as long: SiLU on 16 channels, and the copy made by upsampling.
    """

    @staticmethod
    def forward(ctx: Any, *maps: Tensor) -> Tensor:
        ctx.channels = [x.shape[1] for x in maps]
        return torch.cat(maps, 1)

    @staticmethod
    def backward(ctx: Any, outer: Tensor) -> tuple[Tensor, ...]:
        return tuple(map(channels_last, outer.split(ctx.channels, 1)))


class _RowsAndColumn(torch.autograd.Function):
    """Allocate one gradient the size of x, and cast neither it nor x as a whole."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, index: Tensor, column: int) -> tuple[Tensor, Tensor]:
        dtype = torch.float32 if x.dtype in HALF_PRECISIONS else x.dtype
        ctx.save_for_backward(index)
        ctx.shape, ctx.column = x.shape, column
        return take_rows(x, index), x[:, column].to(dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_rows: Tensor, by_column: Tensor) -> tuple[Tensor, None, None]:
        (index,) = ctx.saved_tensors
        gradient = by_rows.new_zeros(ctx.shape)
        gradient[:, ctx.column] = by_column
        if gradient.device.type == CPU:  # each function is deterministic on one device only
            return gradient.index_add_(0, index, by_rows), None, None
        return gradient.index_put_((index,), by_rows, accumulate=True), None, None


def _cross_entropy(
    logits: Tensor, target: Tensor, positive_weight: float, reduction: str
) -> Tensor:
    checks.same_shape(logits.shape, target.shape)
    weight = None
    if positive_weight != 1.0:
        weight = torch.full((), positive_weight, dtype=logits.dtype, device=logits.device)
    return functional.binary_cross_entropy_with_logits(
        logits, target.detach(), pos_weight=weight, reduction=reduction
    )


def dtype_named(name: str) -> torch.dtype:
    """Return the framework's dtype; ValueError for a name outside the promised ones."""
    checks.known_dtype(name)
    return DTYPES[name]


def _check_one_dtype(*tensors: Tensor) -> None:
    if not torch.is_autocast_enabled(tensors[0].device.type):  # autocast unifies dtypes
        checks.one_dtype(map(dtype_of, tensors))


def _check_rows(x: Tensor, index: Tensor) -> None:
    checks.row_index(index.shape, dtype_of(index))
    # Compiled code cannot check values.
    if reads_at_once(index) and index.numel() > 0 and not torch.compiler.is_compiling():
        checks.rows_in_range(int(index.min()), int(index.max()), x.shape[0])
