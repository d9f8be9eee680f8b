"""Mixed precision under PyTorch; `contract.Amp` says what each function promises."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from backend import checks
from backend.torch.device import resolve
from backend.torch.ops import HALF_DTYPES


def supported(device: str) -> tuple[str, ...]:
    named = torch.device(resolve(device))
    # bfloat16 came with compute capability 8; before, it is emulated.
    if named.type == "cuda" and torch.cuda.get_device_capability(named)[0] < 8:
        return ("float16",)
    return tuple(HALF_DTYPES)


def preferred(device: str) -> str:
    named = torch.device(resolve(device))
    if named.type == "cpu":
        return "float32"
    return preferred_with(torch.cuda.get_device_capability(named)[0])


def preferred_with(major: int) -> str:
    """Return what a GPU of a compute capability prefers."""
    # Matrix units came with 7, for float16 alone; with 8 they take bfloat16, which overflows no
    # gradient. GPUs before are slower in half precision, or not faster.
    return "bfloat16" if major >= 8 else "float16" if major == 7 else "float32"


def autocast(device: str, dtype: str) -> AbstractContextManager[Any]:
    checks.half_precision(dtype, supported(device), device)
    if dtype == "float32":
        return nullcontext()
    return torch.autocast(torch.device(device).type, HALF_DTYPES[dtype])


def scale_gradients_(parameters: Iterable[Tensor], factor: float) -> None:
    gradients = [x.grad for x in parameters if x.grad is not None]
    if gradients:
        torch._foreach_mul_(gradients, factor)
