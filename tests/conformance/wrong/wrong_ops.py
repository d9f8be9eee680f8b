"""Mistakes in `ops`."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from tests.conformance.judging import Backend
from tests.conformance.wrong.registry import register


def aliasing_tensor(b: Backend) -> Any:
    framework = sys.modules[type(b.ops.zeros((1,))).__module__.partition(".")[0]]

    def tensor(array: np.ndarray, device: str = "cpu") -> Any:
        plain = array.flags.c_contiguous and array.flags.writeable and array.dtype.isnative
        return framework.from_numpy(array) if plain and array.size else b.ops.tensor(array, device)

    return tensor


def naive_sigmoid(b: Backend) -> Any:
    return lambda x: x.exp() / (x.exp() + 1.0)


def naive_bce(b: Backend) -> Any:
    def bce_with_logits(logits: Any, target: Any, positive_weight: float = 1.0) -> Any:
        score = b.ops.sigmoid(logits)
        positive = target * score.log() * positive_weight
        return -b.ops.mean(positive + (1.0 - target) * (1.0 - score).log())

    return bce_with_logits


def where_of_float64(b: Backend) -> Any:
    def where(condition: Any, x: Any, y: Any) -> Any:
        number = not (hasattr(x, "shape") and hasattr(y, "shape"))
        picked = b.ops.where(condition, x, y)
        return b.ops.cast(picked, "float64") if number else picked

    return where


def clamp_without_gradient_at_limits(b: Backend) -> Any:
    def clamp(x: Any, low: float | None = None, high: float | None = None) -> Any:
        clamped = b.ops.clamp(x, low, high)
        at_limit = clamped <= (-np.inf if low is None else low)
        return b.ops.where(at_limit, clamped.detach(), clamped)

    return clamp


def dropping_nan(pick: Any, b: Backend) -> Any:
    """`x < y ? x : y` is NaN only where y is."""
    return lambda x, y: b.ops.where(x <= x, pick(x, y), y)


def stopping_at_nan(pick: Any, b: Backend) -> Any:
    def picked(x: Any, y: Any) -> Any:
        found = pick(x, y)
        return b.ops.where(found <= found, found, found.detach())

    return picked


def amax_without_nan(b: Backend) -> Any:
    return lambda x, dim: b.ops.amax(b.ops.where(x <= x, x, -np.inf), dim)


def clamp_of_nan_is_low(b: Backend) -> Any:
    def clamp(x: Any, low: float | None = None, high: float | None = None) -> Any:
        return b.ops.where(x <= x, b.ops.clamp(x, low, high), low or 0.0)

    return clamp


def no_negative_sizes(make: Any) -> Any:
    return lambda shape, *args, **kwargs: make([max(size, 0) for size in shape], *args, **kwargs)


def put_rows_in_place(b: Backend) -> Any:
    def put_rows(x: Any, index: Any, values: Any) -> Any:
        changed = b.ops.put_rows(x, index, values)
        x.detach().copy_(changed.detach())
        return changed

    return put_rows


def replacing_part(b: Backend) -> Any:
    def add_at_(x: Any, index: Any, values: Any) -> None:
        b.ops.add_at_(x, index, values - x[index] if x[index].shape == values.shape else values)

    return add_at_


def joining_that_promotes(join: Any, b: Backend) -> Any:
    return lambda tensors, dim=0: join([b.ops.cast(x, "float64") for x in tensors], dim)


def tiled_upsample(b: Backend) -> Any:
    def upsample(x: Any) -> Any:
        wide = b.ops.cat([x, x], 3)
        return b.ops.cat([wide, wide], 2)

    return upsample


def mean_of_nothing_is_zero(b: Backend) -> Any:
    def mean(x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
        averaged = b.ops.mean(x, dim, keepdim)
        return b.ops.sum(x, dim, keepdim) if 0 in x.shape else averaged

    return mean


def rows_from_the_end(b: Backend) -> Any:
    def take_rows(x: Any, index: Any) -> Any:
        if b.ops.dtype_of(index) != "int64":
            return b.ops.take_rows(x, index)
        wrapped = b.ops.to_numpy(index)
        return b.ops.take_rows(
            x, b.ops.tensor(np.where(wrapped < 0, wrapped + x.shape[0], wrapped))
        )

    return take_rows


def restore_with(lost_of: Any) -> Any:
    """Make `restore_` with another `lost` than the one that it is given."""
    return lambda b: lambda values, others, lost: b.ops.restore_(values, others, lost_of(b, lost))


def restore_all(b: Backend) -> Any:
    def restore_(values: Any, others: Any, lost: Any) -> None:
        for value, other in zip(values, others, strict=True):
            if b.ops.to_numpy(lost) == 1:
                value.detach().copy_(other.detach())

    return restore_


def ema_of_two_products(b: Backend) -> Any:
    def ema_update_(averages: Any, values: Any, decay: float, lost: Any = None) -> None:
        for average, value in zip(averages, values, strict=True):
            average.copy_(average * decay + value.detach() * (1.0 - decay))

    return ema_update_


register(
    (
        ("ops.tensor", "aliases the array", aliasing_tensor),
        (
            "ops.tensor",
            "makes float32 of float64",
            lambda b: (
                lambda array, device="cpu": b.ops.tensor(
                    array.astype("float32") if array.dtype == "float64" else array, device
                )
            ),
        ),
        ("ops.to_numpy", "aliases the tensor", lambda b: lambda x: x.detach().numpy()),
        ("ops.dtype_of", "is always float32", lambda b: lambda x: "float32"),
        ("ops.device_of", "numbers the processor", lambda b: lambda x: "cpu:0"),
        (
            "ops.cast",
            "rounds down",
            lambda b: (
                lambda x, dtype: b.ops.cast(
                    x.floor() if b.ops.dtype_of(x).startswith("float") and dtype == "int64" else x,
                    dtype,
                )
            ),
        ),
        ("ops.cast", "has no gradient", lambda b: lambda x, dtype: b.ops.cast(x, dtype).detach()),
        (
            "ops.zeros",
            "ignores the dtype",
            lambda b: (
                lambda shape, dtype="float32", device="cpu": b.ops.zeros(shape, device=device)
            ),
        ),
        (
            "ops.full",
            "ignores the dtype",
            lambda b: lambda shape, value, dtype="float32", device="cpu": b.ops.full(shape, value),
        ),
        ("ops.zeros", "makes 0 of a negative size", lambda b: no_negative_sizes(b.ops.zeros)),
        ("ops.full", "makes 0 of a negative size", lambda b: no_negative_sizes(b.ops.full)),
        ("ops.atan", "has no gradient", lambda b: lambda x: b.ops.atan(x).detach()),
        ("ops.sigmoid", "overflows", naive_sigmoid),
        ("ops.sigmoid", "has no gradient", lambda b: lambda x: b.ops.sigmoid(x).detach()),
        ("ops.silu", "detaches the gate", lambda b: lambda x: x * b.ops.sigmoid(x).detach()),
        (
            "ops.clamp",
            "ignores the upper limit",
            lambda b: lambda x, low=None, high=None: b.ops.clamp(x, low or 0.0),
        ),
        ("ops.clamp", "has no gradient at the limits", clamp_without_gradient_at_limits),
        ("ops.clamp", "drops NaN", clamp_of_nan_is_low),
        ("ops.minimum", "is the maximum", lambda b: b.ops.maximum),
        ("ops.minimum", "drops NaN", lambda b: dropping_nan(b.ops.minimum, b)),
        ("ops.maximum", "drops NaN", lambda b: dropping_nan(b.ops.maximum, b)),
        (
            "ops.minimum",
            "has no gradient where it is NaN",
            lambda b: stopping_at_nan(b.ops.minimum, b),
        ),
        (
            "ops.maximum",
            "has no gradient where it is NaN",
            lambda b: stopping_at_nan(b.ops.maximum, b),
        ),
        (
            "ops.minimum",
            "gives a tie's gradient to one",
            lambda b: lambda x, y: b.ops.where(x <= y, x, y),
        ),
        (
            "ops.maximum",
            "gives a tie's gradient to one",
            lambda b: lambda x, y: b.ops.where(x >= y, x, y),
        ),
        ("ops.where", "makes a number float64", where_of_float64),
        ("ops.where", "swaps its arguments", lambda b: lambda c, x, y: b.ops.where(c, y, x)),
        (
            "ops.sum",
            "ignores keepdim",
            lambda b: lambda x, dim=None, keepdim=False: b.ops.sum(x, dim),
        ),
        ("ops.sum", "has no gradient", lambda b: lambda x, *args: b.ops.sum(x, *args).detach()),
        ("ops.mean", "is 0 for nothing", mean_of_nothing_is_zero),
        (
            "ops.mean",
            "ignores keepdim",
            lambda b: lambda x, dim=None, keepdim=False: b.ops.mean(x, dim),
        ),
        (
            "ops.amax",
            "keeps the dimension",
            lambda b: lambda x, dim: b.ops.stack([b.ops.amax(x, dim)], dim),
        ),
        (
            "ops.amax",
            "is 0 for nothing",
            lambda b: lambda x, dim: b.ops.sum(x, dim) if 0 in x.shape else b.ops.amax(x, dim),
        ),
        ("ops.amax", "drops NaN", amax_without_nan),
        ("ops.cat", "promotes dtypes", lambda b: joining_that_promotes(b.ops.cat, b)),
        ("ops.cat", "ignores the dimension", lambda b: lambda tensors, dim=0: b.ops.cat(tensors)),
        ("ops.stack", "promotes dtypes", lambda b: joining_that_promotes(b.ops.stack, b)),
        (
            "ops.stack",
            "ignores the dimension",
            lambda b: lambda tensors, dim=0: b.ops.stack(tensors),
        ),
        ("ops.take_rows", "counts from the end", rows_from_the_end),
        ("ops.take_rows", "has no gradient", lambda b: lambda x, i: b.ops.take_rows(x, i).detach()),
        ("ops.put_rows", "writes into the original", put_rows_in_place),
        (
            "ops.put_rows",
            "has no gradient by values",
            lambda b: lambda x, i, values: b.ops.put_rows(x, i, values.detach()),
        ),
        ("ops.add_at_", "adds to a copy", lambda b: lambda x, index, values: None),
        ("ops.add_at_", "replaces", replacing_part),
        ("ops.upsample_nearest_2x", "tiles the image", tiled_upsample),
        ("ops.bce_with_logits", "overflows", naive_bce),
        (
            "ops.bce_with_logits",
            "ignores the weight",
            lambda b: (
                lambda logits, target, positive_weight=1.0: b.ops.bce_with_logits(logits, target)
            ),
        ),
        (
            "ops.bce_terms",
            "returns their mean",
            lambda b: b.ops.bce_with_logits,
        ),
        (
            "ops.bce_terms",
            "weighs the term of 1 - target too",
            lambda b: (
                lambda logits, target, positive_weight=1.0: (
                    b.ops.bce_terms(logits, target) * positive_weight
                )
            ),
        ),
        (
            "ops.ema_update_",
            "swaps the weights",
            lambda b: (
                lambda averages, values, decay, lost=None: b.ops.ema_update_(
                    averages, values, 1.0 - decay, lost
                )
            ),
        ),
        (
            "ops.ema_update_",
            "averages though lost",
            lambda b: (
                lambda averages, values, decay, lost=None: b.ops.ema_update_(
                    averages, values, decay
                )
            ),
        ),
        ("ops.restore_", "restores though not lost", restore_with(lambda b, lost: b.full((), 1))),
        ("ops.restore_", "restores nothing", restore_with(lambda b, lost: b.full((), 0))),
        ("ops.restore_", "puts all others in place", restore_all),
        (
            "ops.to_numpy_later",
            "reads what is there later",
            lambda b: lambda x: lambda: b.ops.to_numpy(x),
        ),
        ("ops.ema_update_", "rounds where nothing changes", ema_of_two_products),
        (
            "ops.ema_update_",
            "updates copies",
            lambda b: (
                lambda averages, values, decay, lost=None: b.ops.ema_update_(
                    [average * 1.0 for average in averages], values, decay, lost
                )
            ),
        ),
    )
)
