"""Gathering arrays of unequal length by collectives for equal ones; imports no framework."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

DTYPES = ("float32", "float64", "int64", "uint8")


def all_gather(
    array: np.ndarray,
    world_size: int,
    gather_equal: Callable[[np.ndarray], list[np.ndarray]],
) -> list[np.ndarray]:
    """Return the arrays (N_r, ...) of all ranks, in their order; `contract.Dist.all_gather`.

    Args:
        gather_equal: gathers arrays of one shape and dtype.
    """
    if array.ndim == 0 or array.dtype.name not in DTYPES:
        raise ValueError(
            f"all_gather takes (N, ...) arrays of {', '.join(DTYPES)}, "
            f"not {array.shape} {array.dtype}"
        )
    if world_size == 1:
        return [array.copy()]
    lengths = [int(found[0]) for found in gather_equal(np.array([len(array)], np.int64))]
    if max(lengths) == 0:
        return [array.copy() for _ in lengths]
    padded = np.zeros((max(lengths), *array.shape[1:]), array.dtype)
    padded[: len(array)] = array
    return [rows[:length] for rows, length in zip(gather_equal(padded), lengths, strict=True)]
