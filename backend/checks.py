"""Preconditions of the contract that are the same for every backend; imports no framework.

Each function but `as_float32` raises ValueError naming the value and what is accepted, or
returns None.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

DTYPES = ("float32", "float64", "int64", "uint8", "bool")
FLOAT_DTYPES = ("float32", "float64")
CPU = "cpu"


def as_float32(constant: float) -> float:
    """Round a constant as OneFlow's kernels do, so float64 runs agree to the last digits."""
    return float(np.float32(constant))


def known_dtype(name: str, accepted: Sequence[str] = DTYPES) -> None:
    if name not in accepted:
        raise ValueError(f"dtype {name!r} is not supported; accepted: {', '.join(accepted)}")


def half_precision(dtype: str, supported: Sequence[str], device: str) -> None:
    if dtype not in ("float32", *supported):
        raise ValueError(
            f"mixed precision in {dtype!r} is not supported on {device}; accepted: "
            + ", ".join(("float32", *supported))
        )


def known_capability(name: str, known: Iterable[str]) -> None:
    if name not in known:
        raise ValueError(f"unknown capability {name!r}; known: {', '.join(known)}")


def thread_number(number: int) -> None:
    if number < 1:
        raise ValueError(f"number of threads {number}; accepted: 1 or more")


def sizes(shape: Sequence[int]) -> None:
    if any(size < 0 for size in shape):
        raise ValueError(f"shape {tuple(shape)} has a negative size; accepted: 0 or more")


def image_batch(shape: Sequence[int], dtype: str) -> None:
    if len(shape) != 4 or dtype != "uint8":
        raise ValueError(f"images must be (B, C, H, W) uint8, not {tuple(shape)} {dtype}")


def finishing(images: Sequence[int], tables: Sequence[int], changes: Sequence[int]) -> None:
    number = images[0]
    if (*tables,) != (number, 3, 256) or (*changes,) != (number, 3) or images[1] != 3:
        raise ValueError(
            f"for {tuple(images)} images: tables {tuple(tables)} and changes {tuple(changes)}; "
            "accepted: (B, 3, H, W), (B, 3, 256) and (B, 3)"
        )


def resized_sides(shape: Sequence[int], height: int, width: int) -> None:
    if min(*shape[2:], height, width) < 1:
        raise ValueError(
            f"images of {tuple(shape[2:])} cannot be resized to {(height, width)}; accepted: "
            "sides of at least 1"
        )


def padded_sides(shape: Sequence[int], height: int, width: int) -> None:
    if height < shape[2] or width < shape[3]:
        raise ValueError(
            f"images of {tuple(shape[2:])} cannot be padded to {(height, width)}; accepted: "
            "a height and width at least as large"
        )


def one_dtype(names: Iterable[str]) -> None:
    """Require at least one tensor, all of the same dtype."""
    different = sorted(set(names))
    if len(different) != 1:
        raise ValueError(f"tensors must share one dtype; found: {', '.join(different) or 'none'}")


def feature_map(shape: Sequence[int], dtype: str, channels: int, wanted_dtype: str) -> None:
    """Require (B, channels, H, W) in the layer's dtype."""
    if len(shape) != 4 or shape[1] != channels or dtype != wanted_dtype:
        raise ValueError(
            f"this layer takes (B, {channels}, H, W) {wanted_dtype}, not {tuple(shape)} {dtype}"
        )


def window_fits(shape: Sequence[int], size: int, padding: int) -> None:
    if min(shape[2:]) + 2 * padding < size:
        raise ValueError(
            f"a window of {size} does not fit maps of {tuple(shape[2:])}, padded by {padding}"
        )


def several_values(shape: Sequence[int]) -> None:
    """Require several values per channel of (B, C, H, W), or none: a single one has no variance."""
    if shape[0] * shape[2] * shape[3] == 1:
        raise ValueError(
            f"BatchNorm needs several values per channel in training, not {tuple(shape)}"
        )


def not_empty(shape: Sequence[int], dim: int) -> None:
    if shape[dim] == 0:
        raise ValueError(f"dimension {dim} of shape {tuple(shape)} is empty: it has no maximum")


def largest(shape: Sequence[int], k: int) -> None:
    if len(shape) != 2 or not 1 <= k <= shape[1]:
        raise ValueError(f"cannot take the {k} largest values per row of shape {tuple(shape)}")


def same_shape(shape: Sequence[int], other: Sequence[int]) -> None:
    if tuple(shape) != tuple(other):
        raise ValueError(f"shapes must be equal, not {tuple(shape)} and {tuple(other)}")


def matrices(shape: Sequence[int], other: Sequence[int]) -> None:
    """Raise ValueError unless matrices (..., N, K) and (..., K, M) can be multiplied."""
    shape, other = tuple(shape), tuple(other)
    if min(len(shape), len(other)) < 2 or shape[:-2] != other[:-2] or shape[-1] != other[-2]:
        raise ValueError(
            f"shapes {shape} and {other} cannot be multiplied; expected (..., N, K) and (..., K, M)"
        )


def linear_shapes(shape: Sequence[int], weight: Sequence[int], bias: Sequence[int] | None) -> None:
    """Raise ValueError unless (..., in), a weight (out, in) and a bias (out,) belong together."""
    shape, weight = tuple(shape), tuple(weight)
    if len(weight) != 2 or shape[-1:] != weight[1:] or tuple(bias or weight[:1]) != weight[:1]:
        raise ValueError(
            f"shapes {shape}, {weight} and {bias} do not match; expected (..., in), (out, in) and "
            "(out,)"
        )


def row_index(shape: Sequence[int], dtype: str) -> None:
    if dtype != "int64" or len(shape) != 1:
        raise ValueError(f"a row index must be (K,) int64, not {tuple(shape)} {dtype}")


def rows_in_range(lowest: int, highest: int, num_rows: int) -> None:
    if lowest < 0 or highest >= num_rows:
        raise ValueError(f"row indices {lowest} to {highest} are outside 0 to {num_rows - 1}")


def row_places(places: Sequence[np.ndarray], tensor_shape: Sequence[int]) -> None:
    """Require row indices into one or more leading dimensions of a tensor."""
    if not 0 < len(places) <= len(tensor_shape) or len({index.shape for index in places}) != 1:
        raise ValueError(
            f"places must be index arrays of equal length for one to {len(tensor_shape)} "
            f"dimensions, not {[index.shape for index in places]}"
        )
    for index, size in zip(places, tensor_shape, strict=False):
        row_index(index.shape, index.dtype.name)
        if len(index):
            rows_in_range(int(index.min()), int(index.max()), size)


def row_values(
    shape: Sequence[int], dtype: str, wanted_shape: Sequence[int], wanted_dtype: str
) -> None:
    if tuple(shape) != tuple(wanted_shape) or dtype != wanted_dtype:
        raise ValueError(
            f"row values must be {tuple(wanted_shape)} {wanted_dtype}, not {tuple(shape)} {dtype}"
        )


def scalar_output(shape: Sequence[int], inputs_require_grad: Iterable[bool]) -> None:
    """Require a 0-d output, and inputs that record a gradient."""
    if len(shape) != 0:
        raise ValueError(f"gradients need a 0-d output, not one of shape {tuple(shape)}")
    if not all(inputs_require_grad):
        raise ValueError("each input must require a gradient; make it with autograd.variable")


def module_state(shapes: Mapping[str, Sequence[int]], arrays: Mapping[str, np.ndarray]) -> None:
    """Require arrays with exactly these names and shapes; report the first five problems."""
    problems = [f"{name} is missing" for name in shapes if name not in arrays]
    problems += [f"{name} is unknown" for name in arrays if name not in shapes]
    problems += [
        f"{name} is {arrays[name].shape}, not {tuple(shape)}"
        for name, shape in shapes.items()
        if name in arrays and arrays[name].shape != tuple(shape)
    ]
    if problems:
        more = f"; and {len(problems) - 5} more" if len(problems) > 5 else ""
        raise ValueError(f"arrays do not fit the module: {'; '.join(problems[:5])}{more}")


def optimizer_state(
    shapes: Mapping[str, tuple[int, ...]], arrays: Mapping[str, np.ndarray]
) -> None:
    """Require that every array has a known name and the matching shape; names may be absent."""
    for name, array in arrays.items():
        if name not in shapes:
            raise ValueError(f"optimizer state {name!r} belongs to no parameter of this model")
        if array.shape != shapes[name]:
            raise ValueError(f"optimizer state {name!r} is {array.shape}, not {shapes[name]}")


def equal_counts(count: int, wanted: int, what: str) -> None:
    if count != wanted:
        raise ValueError(f"{count} {what}; expected {wanted}")


def box_pairs(shape: Sequence[int], other: Sequence[int]) -> None:
    """Require two arrays of boxes (N, 4), paired row by row."""
    if len(shape) != 2 or shape[1] != 4 or tuple(shape) != tuple(other):
        raise ValueError(
            f"both arrays of boxes must be (N, 4), not {tuple(shape)} and {tuple(other)}"
        )
