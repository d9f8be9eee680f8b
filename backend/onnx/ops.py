"""Tensor functions that record graph nodes; documented in `contract.Ops`."""

from collections.abc import Callable, Sequence

import numpy as np

from duet.backend import checks
from duet.backend.onnx import recording
from duet.backend.onnx.device import resolve
from duet.backend.onnx.model_proto import values
from duet.backend.onnx.recording import (
    TYPES,
    Size,
    Tensor,
    apply,
    constant,
    size_tensor,
    sizes_tensor,
)


def tensor(array: np.ndarray, device: str = "cpu") -> Tensor:
    checks.known_dtype(array.dtype.name)
    resolve(device)
    return constant(array)


def to_numpy(x: Tensor) -> np.ndarray:
    return values([x])[0]


def to_numpy_later(x: Tensor) -> Callable[[], np.ndarray]:
    array = to_numpy(x)  # nothing is queued
    return lambda: array


def dtype_of(x: Tensor) -> str:
    return x.dtype


def device_of(x: Tensor) -> str:
    return checks.CPU


def cast(x: Tensor, dtype: str) -> Tensor:
    checks.known_dtype(dtype, tuple(TYPES))
    return recording.cast(x, dtype)


def normalize_images(images: Tensor, dtype: str, channels_last: bool = False) -> Tensor:
    checks.image_batch(images.shape, dtype_of(images))
    checks.known_dtype(dtype, checks.FLOAT_DTYPES)
    if channels_last:
        _refuse_channels_last()
    return cast(images, dtype) / 255


def sigmoid(x: Tensor) -> Tensor:
    return apply("Sigmoid", (x,), x.shape, x.dtype)


def silu(x: Tensor) -> Tensor:
    return x * sigmoid(x)


def leaky_relu(x: Tensor, slope: float) -> Tensor:
    if slope == 0:  # compilers of boards have a faster kernel for it
        return apply("Relu", (x,), x.shape, x.dtype)
    return apply("LeakyRelu", (x,), x.shape, x.dtype, alpha=checks.as_float32(slope))


def matmul(x: Tensor, y: Tensor) -> Tensor:
    checks.matrices(x.shape, y.shape)
    checks.one_dtype((x.dtype, y.dtype))
    return apply("MatMul", (x, y), (*x.shape[:-1], y.shape[-1]), x.dtype)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    checks.linear_shapes(x.shape, weight.shape, None if bias is None else bias.shape)
    checks.one_dtype(t.dtype for t in (x, weight, bias) if t is not None)
    shape = (*x.shape[:-1], weight.shape[0])
    y = apply("MatMul", (x, weight.permute(1, 0)), shape, x.dtype)
    return y if bias is None else y + bias


def softmax(x: Tensor) -> Tensor:
    return apply("Softmax", (x,), x.shape, x.dtype, axis=-1)


def mean(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    dims = list(range(x.ndim)) if dim is None else [range(x.ndim)[dim]]
    kept = [1 if at in dims else size for at, size in enumerate(x.shape)]
    shape = kept if keepdim else [size for at, size in enumerate(x.shape) if at not in dims]
    # Not ReduceMean, whose axes are an attribute or an input depending on the ONNX version.
    axes = constant(np.array(dims, np.int64))
    total = apply("ReduceSum", (x, axes), shape, x.dtype, keepdims=int(keepdim))
    return total / _number_of([x.shape[at] for at in dims], x.dtype)


def _number_of(sides: Sequence[int], dtype: str) -> Tensor:
    number = 1
    for side in sides:
        number = side * number
    if not isinstance(number, Size):
        return constant(np.array(number, dtype))
    return cast(apply("Squeeze", (size_tensor(number),), (), "int64"), dtype)


def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    checks.one_dtype(t.dtype for t in tensors)
    first = tensors[0]
    dim = range(first.ndim)[dim]
    shapes = [t.shape for t in tensors]
    if any(_without(shape, dim) != _without(first.shape, dim) for shape in shapes):
        raise ValueError(f"shapes {shapes} cannot be joined along dimension {dim}")
    total = shapes[0][dim]
    for shape in shapes[1:]:
        total = total + shape[dim]
    joined = [total if i == dim else size for i, size in enumerate(first.shape)]
    return apply("Concat", tuple(tensors), joined, first.dtype, axis=dim)


def _without(shape: Sequence[int], dim: int) -> tuple[int, ...]:
    return (*shape[:dim], *shape[dim + 1 :])


def take_rows(x: Tensor, index: Tensor) -> Tensor:
    checks.row_index(index.shape, index.dtype)
    if index.shape[0]:
        rows = to_numpy(index)
        checks.rows_in_range(int(rows.min()), int(rows.max()), x.shape[0])
    return apply("Gather", (x, index), (*index.shape, *x.shape[1:]), x.dtype, axis=0)


def take_at(x: Tensor, places: Sequence[np.ndarray]) -> Tensor:
    checks.row_places(places, x.shape)
    sizes = x.shape[: len(places)]
    index = np.ravel_multi_index(tuple(places), sizes)
    rows = x.reshape(int(np.prod(sizes)), *x.shape[len(places) :])
    return take_rows(rows, constant(index))


def upsample_nearest_2x(x: Tensor) -> Tensor:
    batch, channels, height, width = x.shape
    if x.dtype == "float64":  # ONNX Runtime has no float64 Resize
        twice = cat([x.reshape(batch, channels, height, width, 1)] * 2, dim=4)
        rows = twice.reshape(batch, channels, height, 1, 2 * width)
        return cat([rows] * 2, dim=3).reshape(batch, channels, 2 * height, 2 * width)
    scales = constant(np.array([1, 1, 2, 2], np.float32))
    shape = batch, channels, height * 2, width * 2
    return apply(
        "Resize",
        (x, None, scales),
        shape,
        x.dtype,
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )


def arange(count: int, dtype: str = "int64", device: str = "cpu") -> Tensor:
    checks.sizes((count,))
    checks.known_dtype(dtype)
    return tensor(np.arange(count).astype(dtype), device)


def cells(height: int, width: int, like: Tensor) -> Tensor:
    if not isinstance(height, Size) and not isinstance(width, Size):
        pairs = np.stack(np.meshgrid(np.arange(width), np.arange(height)), axis=-1)
        return constant(pairs[None, None].astype(like.dtype))
    shape = (1, 1, height, width, 1)
    columns = cast(_numbers_to(width).reshape(1, 1, 1, width, 1), like.dtype)
    rows = cast(_numbers_to(height).reshape(1, 1, height, 1, 1), like.dtype)
    sizes = sizes_tensor(shape)
    both = [apply("Expand", (x, sizes), shape, like.dtype) for x in (columns, rows)]
    return cat(both, dim=4)


def _numbers_to(end: int) -> Tensor:
    last = apply("Squeeze", (size_tensor(end),), (), "int64")
    first, step = (constant(np.array(value, np.int64)) for value in (0, 1))
    return apply("Range", (first, last, step), (end,), "int64")


def resize_bilinear(x: Tensor, height: int, width: int) -> Tensor:
    checks.resized_sides(x.shape, height, width)
    if x.dtype == "float64":
        return _resize_by_products(x, height, width)
    shape = (*x.shape[:2], height, width)
    return apply(
        "Resize",
        (x, None, None, sizes_tensor(shape)),
        shape,
        x.dtype,
        mode="linear",
        coordinate_transformation_mode="half_pixel",
    )


def _resize_by_products(x: Tensor, height: int, width: int) -> Tensor:
    """Resize float64, for which ONNX Runtime has no Resize: rows, then columns."""
    if any(isinstance(side, Size) for side in (*x.shape[2:], height, width)):
        raise ValueError("float64 images of dynamic size cannot be resized; cast them to float32")
    for size in (width, height):
        parts = constant(_parts_of(x.shape[3], size).T)
        x = apply("MatMul", (x, parts), (*x.shape[:3], size), x.dtype).permute(0, 1, 3, 2)
    return x


def _parts_of(old: int, new: int) -> np.ndarray:
    """Return (new, old): the weight of each old pixel of a line in each new one."""
    centres = np.clip((np.arange(new) + 0.5) * old / new - 0.5, 0, old - 1)
    return np.maximum(1 - np.abs(centres[:, None] - np.arange(old)), 0)


def flip_columns(x: Tensor) -> Tensor:
    bounds = [constant(np.array([value], np.int64)) for value in (-1, -(2**62), 3, -1)]
    return apply("Slice", (x, *bounds), x.shape, x.dtype)


def pad_to(x: Tensor, height: int, width: int, value: float) -> Tensor:
    checks.padded_sides(x.shape, height, width)
    for side, wanted in zip(x.shape[2:], (height, width), strict=True):
        if isinstance(side, Size) and not isinstance(wanted, Size):
            raise ValueError(
                f"a dynamic size cannot be padded to {wanted}, which it may exceed; accepted: a "
                "size computed from it"
            )
    pads = sizes_tensor([0] * 6 + [height - x.shape[2], width - x.shape[3]])
    # ONNX Runtime 1.23 fuses a Pad with 0 into a following MaxPool, which pads with minus infinity.
    # It does not fuse a Pad with -0.0.
    fill = constant(np.array(value or -0.0, x.dtype))
    return apply("Pad", (x, pads, fill), (*x.shape[:2], height, width), x.dtype)


def channels_last(x: Tensor) -> Tensor:
    return _refuse_channels_last()


def _refuse_channels_last() -> Tensor:
    raise ValueError("graphs have no channels_last layout; accepted: (B, C, H, W)")
