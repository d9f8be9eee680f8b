"""Gradients under PyTorch; `contract.Autograd` says what each function promises."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from backend import checks
from backend.torch import ops
from backend.torch.device import synchronize


def no_grad() -> AbstractContextManager[Any]:
    return torch.no_grad()


def variable(array: np.ndarray, device: str = "cpu") -> Tensor:
    checks.known_dtype(array.dtype.name, checks.FLOAT_DTYPES)
    return ops.tensor(array, device).requires_grad_()


def gradients(output: Tensor, inputs: Sequence[Tensor]) -> list[Tensor]:
    checks.scalar_output(output.shape, (x.requires_grad for x in inputs))
    if not output.requires_grad:
        return [torch.zeros_like(x) for x in inputs]
    found = torch.autograd.grad(output, list(inputs), allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for x, g in zip(inputs, found, strict=True)]


def value_and_backward(
    model: Callable[[Tensor], Any],
    loss: Callable[[Any, Any], Any],
    images: Tensor,
    targets: Any,
    stage: Callable[[str], AbstractContextManager[Any]],
) -> Any:
    device = ops.device_of(images)
    with stage("forward"):
        predictions = model(images)
        synchronize(device)
    with stage("loss"):
        terms = loss(predictions, targets)
        synchronize(device)
    with stage("backward"):
        terms.total.backward()
        synchronize(device)
    return terms


def clip_gradients(parameters: Iterable[Tensor], max_norm: float) -> Tensor:
    return torch.nn.utils.clip_grad_norm_(list(parameters), max_norm)
