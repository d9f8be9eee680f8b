"""Updates of arrays in place by NumPy, for backends whose own CPU kernels are slower.

Each works through its arrays in pieces that stay in the processor's cache, in as few passes as
NumPy has; the formulas are those of `contract.Optim` and `contract.Ops`. Imports no framework.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from backend.adam import AdamConstants

PIECE = 16384  # elements: five arrays of them in float32 are a third of a megabyte


def adam_(
    weights: np.ndarray,
    gradients: np.ndarray,
    first: np.ndarray,
    second: np.ndarray,
    decay: float,
    constants: AdamConstants,
) -> None:
    """One update of Adam with L2 decay: weights and moments change.

    Args:
        weights: float, best contiguous; the other three likewise, of the same shape and dtype.
    """
    rate, epsilon, beta1, beta2 = constants
    for w, g, m, v in pieces(weights, gradients, first, second):
        if decay:
            g = w * decay + g
        m *= beta1
        m += g * (1 - beta1)
        scratch = g * g
        scratch *= 1 - beta2
        v *= beta2
        v += scratch
        np.sqrt(v, out=scratch)
        scratch += epsilon
        np.divide(m, scratch, out=scratch)
        scratch *= rate
        w -= scratch


def ema_(average: np.ndarray, value: np.ndarray, weight: float) -> None:
    """average += (value - average) * weight; both of one shape and dtype, best contiguous."""
    for kept, new in pieces(average, value):
        step = new - kept
        step *= weight
        kept += step


def pieces(*arrays: np.ndarray) -> Iterator[list[np.ndarray]]:
    """Views of the same piece of each, one piece after the other."""
    if not all(array.flags.c_contiguous for array in arrays):
        yield list(arrays)
        return
    flat = [array.reshape(-1) for array in arrays]
    for start in range(0, flat[0].size, PIECE):
        yield [array[start : start + PIECE] for array in flat]
