"""Mixed precision for OneFlow; documented in `contract.Amp`."""

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext

import oneflow
from oneflow import Tensor
from oneflow.nn import Module

from duet.backend import checks
from duet.backend.oneflow.device import present


def supported(device: str) -> tuple[str, ...]:
    # On a CPU OneFlow 0.9 has no half-precision convolution, and its autocast does nothing. CUDA
    # is untested, and a failure there aborts the process.
    present(device)
    return ()


def preferred(device: str) -> str:
    present(device)
    return "float32"


def autocast(device: str, dtype: str) -> AbstractContextManager[object]:
    checks.half_precision(dtype, supported(device), device)
    return nullcontext()


def cast_together(module: Module, dtype: str) -> AbstractContextManager[None]:
    return nullcontext()  # no half precision


def cast_for_good(module: Module, dtype: str) -> None:
    raise ValueError(f"{dtype}: OneFlow has no half precision here")


def scale_gradients_(parameters: Iterable[Tensor], factor: float) -> None:
    with oneflow.no_grad():
        for x in parameters:
            if x.grad is not None:
                x.grad.mul_(factor)
