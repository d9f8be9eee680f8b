"""Mistakes in `Tensor` and in `ops`."""

import sys
from typing import Any

import numpy as np

from tests.conformance.judging import (
    TENSOR_METHODS,
    Backend,
    Build,
    promoted,
    register_wrong,
    returning,
    with_arguments,
    without_gradient,
)


def instead(name: str) -> Build:
    """Apply another operator than the one asked for."""
    return lambda b, right: TENSOR_METHODS[name]


def rounded(b: Backend, right: Any) -> Any:
    """Compare as float64, which rounds integers beyond 2**53."""
    return lambda x, y: right(b.ops.cast(x, "float64"), y)


def columns_first(b: Backend, right: Any) -> Any:
    return lambda x, *shape: b.ops.tensor(np.reshape(b.ops.to_numpy(x), shape, order="F").copy())


for name in ("__add__", "__sub__", "__mul__", "__truediv__"):
    register_wrong((f"Tensor.{name}", "has no gradient", without_gradient))
    register_wrong((f"Tensor.{name}", "promotes", promoted))
register_wrong(
    ("Tensor.__radd__", "promotes", promoted),
    ("Tensor.__rmul__", "promotes", promoted),
    ("Tensor.__rsub__", "is not reflected", instead("__sub__")),
    ("Tensor.__rtruediv__", "is not reflected", instead("__truediv__")),
    ("Tensor.__pow__", "has no gradient", without_gradient),
    ("Tensor.__pow__", "goes by the logarithm", lambda b, _: lambda x, n: (x.log() * n).exp()),
    ("Tensor.__neg__", "has no gradient", without_gradient),
    ("Tensor.__lt__", "includes equality", instead("__le__")),
    ("Tensor.__le__", "excludes equality", instead("__lt__")),
    ("Tensor.__le__", "is rounded", rounded),
    ("Tensor.__gt__", "includes equality", instead("__ge__")),
    ("Tensor.__gt__", "is rounded", rounded),
    ("Tensor.__ge__", "is not less", lambda b, _: lambda x, y: (x < y).logical_not()),
    ("Tensor.__getitem__", "has no gradient", without_gradient),
    ("Tensor.reshape", "reads columns first", columns_first),
    (
        "Tensor.permute",
        "inverts the order",
        lambda b, right: lambda x, *dims: right(x, *map(int, np.argsort(dims))),
    ),
    ("Tensor.detach", "keeps the gradient", lambda b, _: lambda x: x),
    ("Tensor.shape", "holds NumPy integers", lambda b, _: lambda x: tuple(np.array(x.shape))),
    ("Tensor.ndim", "is at least 1", lambda b, _: lambda x: max(1, x.ndim)),
    ("Tensor.requires_grad", "is always True", returning(True)),
    (
        "Tensor.grad",
        "is zeros before the first backward",
        lambda b, _: lambda x: b.ops.zeros(x.shape) if x.grad is None else x.grad,
    ),
)


def aliasing_tensor(b: Backend, right: Any) -> Any:
    framework = sys.modules[type(b.ops.zeros((1,))).__module__.partition(".")[0]]

    def tensor(array: np.ndarray, device: str = "cpu") -> Any:
        plain = array.flags.c_contiguous and array.flags.writeable and array.dtype.isnative
        return framework.from_numpy(array) if plain and array.size else right(array, device)

    return tensor


def no_negative_sizes(b: Backend, right: Any) -> Any:
    return lambda shape, *args, **kwargs: right([max(size, 0) for size in shape], *args, **kwargs)


register_wrong(
    ("ops.tensor", "aliases the array", aliasing_tensor),
    ("ops.to_numpy", "aliases the tensor", lambda b, _: lambda x: x.detach().numpy()),
    ("ops.to_numpy_later", "reads late", lambda b, _: lambda x: lambda: b.ops.to_numpy(x)),
    ("ops.dtype_of", "is always float32", returning("float32")),
    ("ops.device_of", "numbers the processor", returning("cpu:0")),
    ("ops.cast", "has no gradient", without_gradient),
    ("ops.zeros", "ignores the dtype", with_arguments(dtype="float32")),
    ("ops.zeros", "makes 0 of a negative size", no_negative_sizes),
    ("ops.full", "ignores the dtype", with_arguments(dtype="float32")),
    ("ops.full", "makes 0 of a negative size", no_negative_sizes),
    ("ops.arange", "ignores the dtype", with_arguments(dtype="int64")),
    ("ops.arange", "begins at 1", lambda b, right: lambda *args: right(*args) + 1),
)


def clamp_without_gradient_at_limits(b: Backend, right: Any) -> Any:
    def clamp(x: Any, low: float | None = None, high: float | None = None) -> Any:
        clamped = right(x, low, high)
        at_limit = clamped <= (-np.inf if low is None else low)
        return b.ops.where(at_limit, clamped.detach(), clamped)

    return clamp


def clamp_of_nan_is_low(b: Backend, right: Any) -> Any:
    return lambda x, low=None, high=None: b.ops.where(x <= x, right(x, low, high), low or 0.0)


def dropping_nan(b: Backend, right: Any) -> Any:
    """`x < y ? x : y` is NaN only where y is."""
    return lambda x, y: b.ops.where(x <= x, right(x, y), y)


def stopping_at_nan(b: Backend, right: Any) -> Any:
    def picked(x: Any, y: Any) -> Any:
        found = right(x, y)
        return b.ops.where(found <= found, found, found.detach())

    return picked


def overflowing_softmax(b: Backend, right: Any) -> Any:
    return lambda x: x.exp() / b.ops.sum(x.exp(), -1, True)


def broadcasting_matmul(b: Backend, right: Any) -> Any:
    def matmul(x: Any, y: Any) -> Any:
        if x.ndim > y.ndim == 2:
            return right(x.reshape(-1, x.shape[-1]), y).reshape(*x.shape[:-1], y.shape[-1])
        return right(x, y)

    return matmul


for name in ("minimum", "maximum"):
    register_wrong(
        (f"ops.{name}", "drops NaN", dropping_nan),
        (f"ops.{name}", "has no gradient where it is NaN", stopping_at_nan),
    )
register_wrong(
    ("ops.atan", "has no gradient", without_gradient),
    ("ops.sigmoid", "overflows", lambda b, _: lambda x: x.exp() / (x.exp() + 1.0)),
    ("ops.sigmoid", "has no gradient", without_gradient),
    ("ops.silu", "detaches the gate", lambda b, _: lambda x: x * b.ops.sigmoid(x).detach()),
    ("ops.leaky_relu", "is linear", lambda b, _: lambda x, slope: x * slope),
    (
        "ops.leaky_relu",
        "has no gradient below zero",
        lambda b, right: lambda x, slope: b.ops.where(x > 0, x, right(x, slope).detach()),
    ),
    (
        "ops.leaky_relu",
        "has the gradient 1 at zero",
        lambda b, _: lambda x, slope: b.ops.where(x >= 0, x, x * slope),
    ),
    ("ops.clamp", "ignores the upper limit", with_arguments(high=None, low=-1.0)),
    ("ops.clamp", "has no gradient at the limits", clamp_without_gradient_at_limits),
    ("ops.clamp", "drops NaN", clamp_of_nan_is_low),
    ("ops.minimum", "is the maximum", lambda b, _: b.ops.maximum),
    ("ops.minimum", "a tie is one's", lambda b, _: lambda x, y: b.ops.where(x <= y, x, y)),
    ("ops.maximum", "a tie is one's", lambda b, _: lambda x, y: b.ops.where(x >= y, x, y)),
    ("ops.where", "swaps its arguments", lambda b, right: lambda c, x, y: right(c, y, x)),
    ("ops.matmul", "detaches one matrix", lambda b, right: lambda x, y: right(x, y.detach())),
    ("ops.matmul", "takes unequal numbers of matrices", broadcasting_matmul),
    ("ops.linear", "forgets the bias", with_arguments(bias=None)),
    ("ops.log_softmax", "overflows", lambda b, _: lambda x: b.ops.softmax(x).log()),
    ("ops.softmax", "overflows", overflowing_softmax),
)


def mean_of_nothing_is_zero(b: Backend, right: Any) -> Any:
    def mean(x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
        return b.ops.sum(x, dim, keepdim) if 0 in x.shape else right(x, dim, keepdim)

    return mean


def joining_that_promotes(b: Backend, right: Any) -> Any:
    return lambda tensors, dim=0: right([b.ops.cast(x, "float64") for x in tensors], dim)


def put_rows_in_place(b: Backend, right: Any) -> Any:
    def put_rows(x: Any, index: Any, values: Any) -> Any:
        changed = right(x, index, values)
        x.detach().copy_(changed.detach())
        return changed

    return put_rows


def over_zeros(b: Backend, right: Any) -> Any:
    return lambda x, i, v: right(b.ops.zeros(x.shape, b.ops.to_numpy(x).dtype.name), i, v)


def positions_with_any(b: Backend, right: Any) -> Any:
    return lambda counts, device="cpu": right(np.minimum(counts, 1), device)


def replacing_rows(b: Backend, right: Any) -> Any:
    def add_rows_(x: Any, index: Any, values: Any) -> None:
        right(x, index, values)
        x.copy_(b.ops.put_rows(x, index, values))

    return add_rows_


def adding_once(b: Backend, right: Any) -> Any:
    def add_rows_(x: Any, index: Any, values: Any) -> None:
        kept = sorted({row: place for place, row in enumerate(b.ops.to_numpy(index))}.values())
        chosen = b.ops.tensor(np.array(kept, "int64"))
        if len(index) > len(kept):
            index, values = b.ops.take_rows(index, chosen), b.ops.take_rows(values, chosen)
        right(x, index, values)

    return add_rows_


def rows_as_if_contiguous(b: Backend, right: Any) -> Any:
    def take_at(x: Any, places: Any) -> Any:
        found = right(x, places)
        rows = b.ops.tensor(b.ops.to_numpy(x).ravel("F").reshape(x.shape))
        return found if x.ndim < 3 else right(rows, places)

    return take_at


for name in ("cat", "stack"):
    register_wrong(
        (f"ops.{name}", "promotes dtypes", joining_that_promotes),
        (f"ops.{name}", "ignores the dimension", with_arguments(dim=0)),
    )
register_wrong(
    ("ops.sum", "ignores keepdim", with_arguments(keepdim=False)),
    ("ops.sum", "has no gradient", without_gradient),
    ("ops.mean", "is 0 for nothing", mean_of_nothing_is_zero),
    ("ops.mean", "ignores keepdim", with_arguments(keepdim=False)),
    (
        "ops.amax",
        "keeps the dimension",
        lambda b, right: lambda x, dim: b.ops.stack([right(x, dim)], dim),
    ),
    (
        "ops.amax",
        "is 0 for nothing",
        lambda b, right: lambda x, dim: b.ops.sum(x, dim) if 0 in x.shape else right(x, dim),
    ),
    (
        "ops.amax",
        "drops NaN",
        lambda b, right: lambda x, dim: right(b.ops.where(x <= x, x, -np.inf), dim),
    ),
    (
        "ops.top_k",
        "takes the smallest",
        lambda b, right: lambda x, k: (-(found := right(-x, k))[0], found[1]),
    ),
    ("ops.top_k", "returns columns first", lambda b, right: lambda x, k: right(x, k)[::-1]),
    ("ops.take_rows", "has no gradient", without_gradient),
    ("ops.put_rows", "writes into the original", put_rows_in_place),
    ("ops.put_largest", "keeps the last", lambda b, _: lambda x, i, v: b.ops.put_rows(x, i, v)),
    ("ops.put_largest", "forgets what was there", over_zeros),
    ("ops.repeated", "returns each position once", positions_with_any),
    ("ops.put_rows", "detaches values", lambda b, right: lambda x, i, v: right(x, i, v.detach())),
    ("ops.add_rows_", "adds to a copy", returning(None)),
    ("ops.add_rows_", "replaces", replacing_rows),
    ("ops.add_rows_", "adds one of several rows", adding_once),
    ("ops.take_at", "takes a permuted tensor for a flat one", rows_as_if_contiguous),
    (
        "ops.take_at",
        "takes rows in ascending order",
        lambda b, right: lambda x, places: right(x, [np.sort(index) for index in places]),
    ),
)


def tiled(b: Backend, right: Any) -> Any:
    return lambda x: b.ops.cat([b.ops.cat([x, x], 3)] * 2, 2)


def transposed_cells(b: Backend, right: Any) -> Any:
    return lambda height, width, like: right(width, height, like).permute(0, 1, 3, 2, 4)


def pixel_at_the_corner(b: Backend, right: Any) -> Any:
    def resize_bilinear(x: Any, height: int, width: int) -> Any:
        rows = [row * x.shape[2] // height for row in range(height)]
        columns = [column * x.shape[3] // width for column in range(width)]
        x = b.ops.stack([x[:, :, row] for row in rows], 2)
        return b.ops.stack([x[..., column] for column in columns], 3)

    return resize_bilinear


def padded_on_the_left(b: Backend, right: Any) -> Any:
    def pad_to(x: Any, height: int, width: int, value: float) -> Any:
        padded = b.ops.flip_columns(right(x, height, x.shape[3], value))
        return b.ops.flip_columns(right(padded, height, width, value))

    return pad_to


def channels_moved(b: Backend, right: Any) -> Any:
    """Return the memory of the other layout, read as if it were this one."""

    def normalize_images(images: Any, dtype: str, channels_last: bool = False) -> Any:
        x = right(images, dtype, channels_last)
        return x.permute(0, 2, 3, 1).reshape(*x.shape)

    return normalize_images


register_wrong(
    ("ops.upsample_nearest_2x", "tiles the image", tiled),
    ("ops.cells", "has rows before columns", transposed_cells),
    (
        "ops.cells",
        "is float32 always",
        lambda b, right: lambda height, width, like: right(height, width, b.zeros((1,))),
    ),
    ("ops.cells", "counts from the centres", lambda b, right: lambda *args: right(*args) + 0.5),
    ("ops.resize_bilinear", "takes the nearest pixel", pixel_at_the_corner),
    (
        "ops.resize_bilinear",
        "takes any size",
        lambda b, right: lambda x, height, width: right(x, max(height, 1), max(width, 1)),
    ),
    ("ops.flip_columns", "flips nothing", lambda b, _: lambda x: x),
    ("ops.pad_to", "pads on the left", padded_on_the_left),
    ("ops.pad_to", "pads with zeros", with_arguments(value=0.0)),
    ("ops.pad_to", "has no gradient", without_gradient),
    ("ops.channels_last", "moves the channels", lambda b, _: lambda x: x.permute(0, 2, 3, 1)),
    (
        "ops.normalize_images",
        "divides by 256",
        lambda b, right: lambda *args: right(*args) * (255 / 256),
    ),
    ("ops.normalize_images", "mixes layouts up", channels_moved),
)


def naive_bce(b: Backend, right: Any) -> Any:
    def bce_with_logits(logits: Any, target: Any, positive_weight: float = 1.0) -> Any:
        score = b.ops.sigmoid(logits)
        positive = target * score.log() * positive_weight
        return -b.ops.mean(positive + (1.0 - target) * (1.0 - score).log())

    return bce_with_logits


register_wrong(
    ("ops.bce_with_logits", "overflows", naive_bce),
    ("ops.bce_with_logits", "ignores the weight", with_arguments(positive_weight=1.0)),
    ("ops.bce_terms", "returns their mean", lambda b, _: b.ops.bce_with_logits),
    (
        "ops.bce_terms",
        "weighs the term of 1 - target too",
        lambda b, right: lambda logits, target, weight=1.0: right(logits, target) * weight,
    ),
    (
        "ops.restore_",
        "restores though not lost",
        lambda b, right: lambda values, others, lost: right(values, others, b.full((), 1)),
    ),
    ("ops.restore_", "restores nothing", returning(None)),
)


def take_rows_and_column(mistake: str) -> Build:
    """Make the two operations, with one mistake."""

    def build(b: Backend, right: Any) -> Any:
        def wrong(x: Any, index: Any, column: int) -> Any:
            if mistake == "takes any index":
                index = b.ops.tensor(b.ops.to_numpy(index).astype("int64").reshape(-1) * 0)
            rows, values = right(x, index, column)
            if mistake == "has no gradient by its rows":
                rows = rows.detach()
            if mistake == "has no gradient by its column":
                values = values.detach()
            if mistake == "takes the first column":
                values = x[:, 0]
            if mistake == "counts a row once":
                places = b.ops.to_numpy(index)
                first = np.isin(np.arange(len(places)), np.unique(places, return_index=True)[1])
                rows = b.ops.where(b.ops.tensor(first[:, None]), rows, rows.detach())
            return rows, values

        return wrong

    return build


for mistake in (
    "takes any index",
    "has no gradient by its rows",
    "has no gradient by its column",
    "takes the first column",
    "counts a row once",
):
    register_wrong(("ops.take_rows_and_column", mistake, take_rows_and_column(mistake)))
