"""Batched updates of many tensors for OneFlow; see `contract.MultiTensor`.

On CUDA, OneFlow's multi-tensor kernels do them, in float32 only. It has none for CPUs: there,
NumPy updates the EMA in place, twice as fast as one operation per tensor. Optimizers use OneFlow's
kernels, which take less time than looking up the memory of each gradient.
"""

from collections.abc import Sequence

import numpy as np
import oneflow
from oneflow import Tensor

from duet.backend import checks
from duet.backend.oneflow import ops, optim
from duet.backend.oneflow.device import synchronize
from duet.backend.updates import OfMemory

PIECE = 16384  # elements; three arrays of this size fit in the CPU cache


@OfMemory
def _arrays(averages: Sequence[Tensor], values: Sequence[Tensor]) -> list[list[np.ndarray]]:
    """Return NumPy views of CPU tensors; creating them takes longer than most updates."""
    return [[x.detach().numpy() for x in tensors] for tensors in (averages, values)]


class SGD(optim.SGD):
    """OneFlow's fused SGD if it has one, else the plain one."""

    FUSED = True


class Adam(optim.Adam):
    """OneFlow's fused Adam if it has one, else the plain one."""

    FUSED = True


class AdamW(optim.AdamW):
    """The same with decoupled weight decay."""

    FUSED = True


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
        synchronize(checks.CPU)  # all queued work must be done
        for average, value in zip(*_arrays(averages, values), strict=True):
            _move_towards(average, value, 1.0 - decay)
    elif optim.fit_kernels(tensors):
        _ema_on_cuda(averages, values, decay)
    else:
        optim.ema_update_(averages, values, decay)


def describe(optimizer: str, device: str) -> str:
    if device != checks.CPU:
        return f"OneFlow's multi-tensor kernels for {optimizer} and EMA on {device}"
    return (
        f"OneFlow has no multi-tensor kernels for CPUs: {optimizer} updates one tensor at a time, "
        "NumPy updates the EMA"
    )


def _move_towards(average: np.ndarray, value: np.ndarray, weight: float) -> None:
    """Add (value - average) * weight to average, in place."""
    if average.flags.c_contiguous and value.flags.c_contiguous:
        average, value = average.reshape(-1), value.reshape(-1)
    for start in range(0, len(average), PIECE):
        kept = average[start : start + PIECE]
        step = value[start : start + PIECE] - kept
        step *= weight
        kept += step


def _ema_on_cuda(averages: Sequence[Tensor], values: Sequence[Tensor], decay: float) -> None:
    """Update with the SGD kernel: average -= (1 - decay) * (average - value).

    This leaves an average equal to its value unchanged. `multi_tensor_yolov5_weight_update` adds
    two products, which rounds it.
    """
    with oneflow.no_grad():
        oneflow._C.multi_tensor_sgd_update(
            model=list(averages),
            model_diff=[value.detach() for value in values],
            scale=-1.0,
            weight_decay=1.0,
            learning_rate_val=1.0 - decay,
        )
