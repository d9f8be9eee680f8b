"""Checks of `contract.Ops`: images resized, turned, padded and laid out."""

from __future__ import annotations

import numpy as np

from tests.conformance.judging import (
    Backend,
    assert_equal,
    assert_op,
    assert_refused,
    judges,
    uniform,
)

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
