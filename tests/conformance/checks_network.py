"""Checks of `contract.Ops`: network and loss, what a step restores, and images."""

import itertools
from functools import partial
from typing import Any

import numpy as np

from tests.conformance.checks_shapes import check_index_errors
from tests.conformance.judging import (
    CHECKS,
    FLOATS,
    Backend,
    Check,
    assert_equal,
    assert_gradient,
    assert_op,
    assert_refused,
    assert_values,
    judges,
    uniform,
)


def upsample(x: np.ndarray) -> np.ndarray:
    return x.repeat(2, axis=2).repeat(2, axis=3)


@judges("ops.upsample_nearest_2x")
def repeats_each_value_four_times(b: Backend) -> None:
    for shape in ((2, 3, 4, 5), (1, 1, 1, 1), (0, 3, 2, 2), (2, 1, 3, 2)):
        assert_op(b, b.ops.upsample_nearest_2x, upsample, shape)


@judges("ops.upsample_nearest_2x")
def repeats_large_maps_and_maps_kept_channels_last(b: Backend) -> None:
    for shape in ((2, 4, 5, 3), (1, 40, 30, 2), (1, 32, 32, 4)):
        for turn in ((0, 1, 2, 3), (0, 3, 1, 2)):
            array = uniform(shape)
            x = b.variable(array)
            found = b.ops.upsample_nearest_2x(x.permute(*turn))
            assert_equal(b.ops.to_numpy(found), upsample(array.transpose(turn)))
            if not b.trains:
                continue
            batch, channels, height, width = array.transpose(turn).shape
            weights = uniform(found.shape, seed=1)
            (gradient,) = b.autograd.gradients(b.ops.sum(found * b.ops.tensor(weights)), [x])
            blocks = weights.reshape(batch, channels, height, 2, width, 2).sum((3, 5))
            assert_equal(b.ops.to_numpy(gradient), blocks.transpose(np.argsort(turn)))


def bce(logits: np.ndarray, target: np.ndarray, positive_weight: float = 1.0) -> np.ndarray:
    """Return the mean of `bce_terms`."""
    return np.asarray(bce_terms(logits, target, positive_weight).mean()).astype(logits.dtype)


def bce_terms(logits: np.ndarray, target: np.ndarray, positive_weight: float = 1.0) -> np.ndarray:
    """Return -(w t log s + (1 - t) log(1 - s)), log s = -log(1 + e^-x), without overflow."""
    log_sigmoid = -np.logaddexp(0.0, -logits)
    log_one_minus = -np.logaddexp(0.0, logits)
    terms = positive_weight * target * log_sigmoid + (1.0 - target) * log_one_minus
    return np.asarray(-terms).astype(logits.dtype)


CROSS_ENTROPIES = {"bce_with_logits": bce, "bce_terms": bce_terms}


def check_cross_entropy(name: str, b: Backend) -> None:
    function, reference = getattr(b.ops, name), CROSS_ENTROPIES[name]
    target = uniform((2, 3), low=0, high=1, seed=1)
    large = np.array([1000.0, -1000.0, 1000.0], "float32"), np.array([0, 1, 1], "float32")
    for weight in (1.0, 2.5, 0.3):
        for shape in ((3,), (2, 3), (2, 3, 2, 2), ()):
            for dtype in FLOATS:
                pair = uniform(shape, dtype, -6, 6), uniform(shape, dtype, 0, 1, seed=1)
                assert_values(b, function, reference, *pair, args=(weight,))
        assert_values(b, function, reference, *large, args=(weight,))
        parts = [uniform((9,), low=0, high=1, seed=seed) for seed in (2, 3)]
        assert_values(
            b,
            lambda x, y, weight=weight: function(x[3:], y[3:], weight),
            lambda x, y, weight=weight: reference(x[3:], y[3:], weight),
            *parts,
        )
        assert_gradient(
            b,
            lambda x, weight=weight: function(x, b.ops.tensor(target), weight),
            lambda x, weight=weight: reference(x, target, weight),
            uniform((2, 3), low=-4, high=4),
        )
        logits, variable = b.variable(uniform((2, 3))), b.variable(target)
        total = b.ops.sum(function(logits, variable, weight))
        _, gradient = b.autograd.gradients(total, [logits, variable])
        assert_equal(b.ops.to_numpy(gradient), np.zeros((2, 3)))


def check_cross_entropy_of_nothing(name: str, b: Backend) -> None:
    for weight in (1.0, 2.5):
        x = b.variable(np.zeros((0, 3), "float32"))
        empty = getattr(b.ops, name)(x, b.zeros((0, 3)), weight)
        wanted = np.full((0, 3) if name == "bce_terms" else (), np.nan, "float32")
        assert_equal(b.ops.to_numpy(empty), wanted)
        (gradient,) = b.autograd.gradients(b.ops.sum(empty), [x])
        assert_equal(b.ops.to_numpy(gradient), np.zeros((0, 3), "float32"))


def check_cross_entropy_errors(name: str, b: Backend) -> None:
    for left, right in (((2,), (3,)), ((2, 3), (3, 2)), ((2, 3), (3,))):
        for weight in (1.0, 2.5):
            function = getattr(b.ops, name)
            assert_refused(str(right), function, b.zeros(left), b.zeros(right), weight)


for name in CROSS_ENTROPIES:
    for label, run in (
        ("values, and a gradient by the logits alone", check_cross_entropy),
        ("of nothing", check_cross_entropy_of_nothing),
        ("refuses two shapes", check_cross_entropy_errors),
    ):
        CHECKS.append(Check(f"ops.{name}", label, partial(run, name)))


@judges("ops.restore_")
def only_what_is_not_finite_and_lost_is_restored(b: Backend) -> None:
    for dtype in ("float32", "float64"):
        arrays = [np.array([1, np.nan, -np.inf, 0]), np.array([[np.inf, 2]]), np.array(3.0)]
        for lost in (0, 1):
            values = [b.ops.tensor(array.astype(dtype)) for array in arrays]
            others = [b.ops.tensor(np.full(array.shape, 7.0, dtype)) for array in arrays]
            b.ops.restore_(values, others, b.full((), lost))
            for value, array in zip(values, arrays, strict=True):
                wanted = np.where(np.isfinite(array), array, 7.0) if lost else array
                assert_equal(b.ops.to_numpy(value), np.asarray(wanted).astype(dtype))


@judges("ops.restore_")
def restores_the_module_that_owns_the_tensors(b: Backend) -> None:
    module = b.nn.BatchNorm2d(2)
    other = b.nn.frozen_copy(module)
    spoiled = {**b.nn.state_arrays(module), "running_var": np.array([5.0, np.nan], "float32")}
    b.nn.load_state_arrays(module, spoiled)
    pair = (b.nn.float_tensors(x)() for x in (module, other))
    b.ops.restore_(*pair, b.full((), 1))
    assert_equal(b.nn.state_arrays(module)["running_var"], np.array([5.0, 1.0], "float32"))
    assert all(x.requires_grad for _, x in b.nn.named_parameters(module))


@judges("ops.restore_")
def restores_none_and_refuses_unequal_numbers(b: Backend) -> None:
    b.ops.restore_([], [], b.full((), 1))
    x = b.zeros((2,))
    assert_refused("1 others", b.ops.restore_, [x, x], [x], b.full((), 1))


ROWS_AND_COLUMN = "ops.take_rows_and_column"
INDICES = ([2, 0], [1, 3, 1, 1], [])
# Roundings to 8 bits: of three gradients of a row, and of their sum.
HALF_TOLERANCE = 4 * 2.0**-9


@judges(ROWS_AND_COLUMN)
def gives_rows_and_a_column_with_the_gradients_of_both(b: Backend) -> None:
    for shape, indices in (((4, 3), INDICES), ((4, 1), INDICES), ((0, 3), ([],))):
        for rows, column in itertools.product(indices, {0, shape[1] - 1}):
            index = np.array(rows, "int64")
            args = index, column
            for place, wanted in enumerate((lambda x, i, c: x[i], lambda x, i, c: x[:, c])):
                found = part(b, place)
                assert_op(b, found, wanted, shape, args=args, gradient=shape == (4, 3))
            assert_op(b, partial(joined, b), both, shape, args=args, gradient=shape == (4, 3))


@judges(ROWS_AND_COLUMN)
def half_precision_rows_keep_their_dtype_and_the_column_is_float32(b: Backend) -> None:
    index = np.array([1, 3, 1, 1])
    for dtype in b.amp.supported("cpu"):
        found = []
        for run in (joined, joined_of_a_cast):
            variable = b.variable(uniform((4, 3), "float32"))
            with b.amp.autocast("cpu", dtype):
                half = b.ops.matmul(variable, b.ops.tensor(np.eye(3, dtype="float32")))
            assert b.ops.dtype_of(half) == dtype
            y = run(b, half, index, 2)
            assert b.ops.dtype_of(y) == "float32"
            total = b.ops.sum(y * b.ops.tensor(uniform(y.shape, "float32", seed=5)))
            (gradient,) = b.autograd.gradients(total, [variable])
            found.append((b.ops.to_numpy(y), b.ops.to_numpy(gradient)))
        (values, gradient), (plain_values, plain_gradient) = found
        np.testing.assert_array_equal(values, plain_values)
        assert_equal(gradient, plain_gradient, HALF_TOLERANCE)


@judges(ROWS_AND_COLUMN)
def refuses_rows_out_of_range(b: Backend) -> None:
    check_index_errors(b, lambda x, index: b.ops.take_rows_and_column(x, index, 1))


def part(b: Backend, place: int) -> Any:
    return lambda x, index, column: b.ops.take_rows_and_column(x, b.ops.tensor(index), column)[
        place
    ]


def both(x: np.ndarray, index: np.ndarray, column: int) -> np.ndarray:
    return np.concatenate((x[index].reshape(-1), x[:, column]))


def joined(b: Backend, x: Any, index: np.ndarray, column: int) -> Any:
    """Return rows and column one after the other, (K * R + N,)."""
    rows, values = b.ops.take_rows_and_column(x, b.ops.tensor(index), column)
    assert b.ops.dtype_of(rows) == b.ops.dtype_of(x)
    return b.ops.cat([b.ops.cast(rows, b.ops.dtype_of(values)).reshape(-1), values])


def joined_of_a_cast(b: Backend, x: Any, index: np.ndarray, column: int) -> Any:
    full = b.ops.cast(x, "float32")
    rows = b.ops.take_rows(full, b.ops.tensor(index))
    return b.ops.cat([rows.reshape(-1), full[:, column]])


# Places between pixels are computed in the dtype, up to 40 here: a place is wrong by some 4e-6 in
# float32, and so is the value there.
RESIZE_TOLERANCE = {"float32": 1e-5, "float64": 1e-13}
SHAPES = ((2, 3, 10, 14), (1, 1, 7, 5), (1, 2, 1, 1), (0, 3, 4, 4))


def neighbours(old: int, new: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the two old places beside the centre of each new one, and how far it is from the
    first."""
    place = np.maximum((np.arange(new) + 0.5) * old / new - 0.5, 0)
    first = np.floor(place).astype(int)
    return first, np.minimum(first + 1, old - 1), place - first


def resized(x: np.ndarray, height: int, width: int) -> np.ndarray:
    """Return images in their dtype: rows interpolated, then columns."""
    above, below, down = neighbours(x.shape[2], height)
    left, right, across = neighbours(x.shape[3], width)
    down = down[:, None]
    rows = x[:, :, above] * (1 - down) + x[:, :, below] * down
    return (rows[..., left] * (1 - across) + rows[..., right] * across).astype(x.dtype)


@judges("ops.resize_bilinear")
def interpolates_between_centres_of_pixels(b: Backend) -> None:
    sizes = ((8, 11), (10, 14), (40, 33), (1, 1), (3, 20))
    for dtype, tolerance in RESIZE_TOLERANCE.items():
        for shape in SHAPES:
            for size in sizes:
                x = uniform(shape, dtype)
                found = b.ops.to_numpy(b.ops.resize_bilinear(b.ops.tensor(x), *size))
                assert_equal(found, resized(x, *size), tolerance)


@judges("ops.resize_bilinear")
def does_not_average_what_is_left_out(b: Backend) -> None:
    # Each new pixel lies between columns 1 and 2, or 5 and 6; antialiasing would see the others.
    x = np.tile(np.array([9, 1, 3, 9, 9, 5, 7, 9], "float32"), (1, 1, 2, 1))
    found = b.ops.to_numpy(b.ops.resize_bilinear(b.ops.tensor(x), 2, 2))
    assert_equal(found, np.array([[[[2, 6], [2, 6]]]], "float32"), 1e-6)


@judges("ops.resize_bilinear")
def resizes_a_batch_without_images(b: Backend) -> None:
    nothing = b.ops.tensor(np.zeros((0, 3, 4, 5), "float32"))
    assert tuple(b.ops.resize_bilinear(nothing, 6, 3).shape) == (0, 3, 6, 3)


@judges("ops.resize_bilinear")
def refuses_to_resize_from_or_to_nothing(b: Backend) -> None:
    x = b.ops.tensor(uniform((1, 1, 2, 3)))
    for size in ((0, 3), (2, -1)):
        assert_refused(str(size), b.ops.resize_bilinear, x, *size)
    assert_refused("(0, 3)", b.ops.resize_bilinear, b.zeros((1, 1, 0, 3)), 2, 2)


@judges("ops.flip_columns")
def exchanges_left_and_right(b: Backend) -> None:
    for dtype in ("float32", "float64"):
        for shape in SHAPES:
            x = uniform(shape, dtype)
            assert_equal(b.ops.to_numpy(b.ops.flip_columns(b.ops.tensor(x))), x[..., ::-1])


@judges("ops.pad_to")
def adds_a_value_at_the_bottom_and_right(b: Backend) -> None:
    def padded(x: np.ndarray, height: int, width: int, value: float) -> np.ndarray:
        sides = ((0, 0), (0, 0), (0, height - x.shape[2]), (0, width - x.shape[3]))
        return np.pad(x, sides, constant_values=value)

    for shape in (*SHAPES, (2, 1, 3, 2)):
        for below, beside in ((3, 2), (0, 1), (1, 0), (0, 0)):
            args = shape[2] + below, shape[3] + beside, 0.447
            small = shape[2] < 7  # differences of each number of a large one would take long
            assert_op(b, b.ops.pad_to, padded, shape, args=args, gradient=small)


@judges("ops.pad_to")
def refuses_to_cut(b: Backend) -> None:
    for size in ((1, 3), (2, 2)):
        assert_refused(str(size), b.ops.pad_to, b.zeros((1, 1, 2, 3)), *size, 0.0)


@judges("ops.channels_last")
def keeps_shape_and_values(b: Backend) -> None:
    for shape in SHAPES:
        x = b.ops.tensor(uniform(shape, "float32"))
        if b.device.supports("channels_last"):
            assert_equal(b.ops.to_numpy(b.ops.channels_last(x)), uniform(shape, "float32"))
        else:
            assert_refused("channels_last", b.ops.channels_last, x)
