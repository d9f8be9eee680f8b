"""Batched updates of many tensors for PyTorch; see `contract.MultiTensor`.

PyTorch's fused optimizers and `_foreach` functions do them: a few launches on a GPU, one pass over
memory on a CPU. EMA and values packed alike by `nn.pack` are updated as one tensor each.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from duet.backend import checks
from duet.backend.torch import optim
from duet.backend.torch.optim import memory_order
from duet.backend.updates import OfMemory


class SGD(optim.SGD):
    """PyTorch's fused SGD."""

    FUSED = True


class Adam(optim.Adam):
    """PyTorch's fused Adam."""

    FUSED = True


class AdamW(optim.AdamW):
    """PyTorch's fused Adam with decoupled weight decay."""

    FUSED = True


def ema_update_(
    averages: Sequence[Tensor],
    values: Sequence[Tensor],
    decay: float,
    lost: Tensor | None = None,
) -> None:
    checks.equal_counts(len(values), len(averages), "values")
    if not averages:
        return
    spans = _spans(averages, values)
    weight = optim.unless_lost(1.0 - decay, 0.0, lost, averages)
    with torch.no_grad():
        if spans:
            spans[0].lerp_(spans[1], weight)
        elif isinstance(weight, float):
            torch._foreach_lerp_(list(averages), list(values), weight)
        else:  # `_foreach_lerp_` does not accept one weight on the device
            for average, value in zip(averages, values, strict=True):
                average.lerp_(value, weight)


def describe(optimizer: str, device: str) -> str:
    where = "the CPU" if device == checks.CPU else device
    return f"PyTorch's fused {optimizer}, and the EMA in one block of memory, on {where}"


@OfMemory
def _spans(averages: Sequence[Tensor], values: Sequence[Tensor]) -> tuple[Tensor, Tensor] | None:
    """Return flat tensors over averages and values, if each fills one block of memory with the same
    layout, else None.
    """
    average, value = _span(averages), _span(values)
    if average is None or value is None or not _are_alike(average, value):
        return None
    apart = value.data_ptr() - average.data_ptr()
    pairs = zip(averages, values, strict=True)
    alike = all(_are_alike(x, y) and y.data_ptr() - x.data_ptr() == apart for x, y in pairs)
    return (average, value) if alike else None


def _span(tensors: Sequence[Tensor]) -> Tensor | None:
    """Return a flat view of the memory that tensors fill without gaps or overlap, else None."""
    ordered = sorted(tensors, key=Tensor.data_ptr)
    first = ordered[0].detach()
    storage, end = first.untyped_storage().data_ptr(), first.data_ptr()
    for x in ordered:
        fits = x.dtype == first.dtype and x.untyped_storage().data_ptr() == storage
        without_gaps = memory_order(torch.empty_like(x, device="meta"))
        if not fits or x.data_ptr() != end or memory_order(x) != without_gaps:
            return None
        end += x.numel() * x.element_size()
    return first.as_strided((sum(x.numel() for x in ordered),), (1,))


def _are_alike(x: Tensor, y: Tensor) -> bool:
    same = x.dtype == y.dtype and x.device == y.device and x.shape == y.shape
    return same and memory_order(x) == memory_order(y)
