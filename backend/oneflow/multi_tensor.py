"""Batched updates of many tensors for OneFlow; see `contract.MultiTensor`.

Its multi-tensor kernels are for GPUs and untested here, so the optimizers are the plain ones. On a
CPU, NumPy updates the EMA in place, twice as fast as one operation per tensor.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence

import numpy as np
from oneflow import Tensor

from duet.backend import checks
from duet.backend.oneflow import ops, optim
from duet.backend.oneflow.device import synchronize

SGD, Adam, AdamW = optim.SGD, optim.Adam, optim.AdamW

PIECE = 16384  # elements; three arrays of this size fit in the CPU cache


class Memory:
    """NumPy views of contiguous CPU tensors.

    Creating them takes longer than most updates. They are recreated only for other tensors, or
    after a model was placed, which reallocates its tensors.
    """

    placed = 0  # how often a model was placed

    def __init__(self) -> None:
        self._placed = 0
        self._tensors: list[Tensor] = []
        self._arrays: list[np.ndarray] = []

    def of(self, tensors: Sequence[Tensor]) -> list[np.ndarray]:
        """Return arrays sharing the tensors' memory, after all queued work is done."""
        synchronize(checks.CPU)
        same = len(self._tensors) == len(tensors) and all(map(operator.is_, self._tensors, tensors))
        if self._placed != Memory.placed or not same:
            self._arrays = [x.detach().numpy() for x in tensors]
            self._tensors, self._placed = list(tensors), Memory.placed
        return self._arrays


_ema_memory = Memory()


def ema_update_(
    averages: Sequence[Tensor],
    values: Sequence[Tensor],
    decay: float,
    lost: Tensor | None = None,
) -> None:
    checks.equal_counts(len(values), len(averages), "values")
    if ops.is_one(lost):
        return
    tensors = [*averages, *values]
    if not any(x.is_cuda for x in tensors):
        arrays = _ema_memory.of(tensors)
        for average, value in zip(arrays[: len(averages)], arrays[len(averages) :], strict=True):
            _move_towards(average, value, 1.0 - decay)
    else:
        ops.ema_update_(averages, values, decay)


def describe(optimizer: str, device: str) -> str:
    if device != checks.CPU:
        return f"OneFlow updates {optimizer} and EMA one tensor at a time on {device}"
    return f"OneFlow updates {optimizer} one tensor at a time, NumPy the EMA, on the CPU"


def _move_towards(average: np.ndarray, value: np.ndarray, weight: float) -> None:
    """Add (value - average) * weight to average, in place."""
    if average.flags.c_contiguous and value.flags.c_contiguous:
        average, value = average.reshape(-1), value.reshape(-1)
    for start in range(0, len(average), PIECE):
        kept = average[start : start + PIECE]
        step = value[start : start + PIECE] - kept
        step *= weight
        kept += step
