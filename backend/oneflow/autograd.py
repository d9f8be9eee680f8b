"""Gradients for OneFlow; documented in `contract.Autograd`."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import ParamSpec, TypeVar

import numpy as np
import oneflow
from oneflow import Tensor

from duet.backend import checks, modules, updates
from duet.backend.oneflow import ops

# Tested: a graph without an optimizer rejects backward ("job has no TrainConf") and autograd.grad,
# and its outputs require no gradient. With an optimizer, it silently keeps the learning rate of
# its first step.
NO_COMPILER = "OneFlow 0.9 compiles a training step only with its optimizer (nn.Graph)"


P = ParamSpec("P")
R = TypeVar("R")
variable = modules.variable
value_and_backward = updates.value_and_backward


def no_grad() -> AbstractContextManager[object]:
    return oneflow.no_grad()


def recording() -> AbstractContextManager[object]:
    return oneflow.enable_grad()


def gradients(output: Tensor, inputs: Sequence[Tensor]) -> list[Tensor]:
    checks.scalar_output(output.shape, (x.requires_grad for x in inputs))
    # OneFlow rejects inputs that the output does not depend on, so add an empty sum of each: 0,
    # with gradient 0.
    for x in inputs:
        output = output + x.reshape(x.numel())[:0].sum().to(output.dtype)
    return list(oneflow.autograd.grad(output, list(inputs)))


def compile_problem(device: str) -> str | None:
    return NO_COMPILER


def compiled(
    function: Callable[P, R], most_shapes: int = 1, graphs: bool = False
) -> Callable[P, R]:
    raise ValueError(NO_COMPILER)


def clip_gradients(parameters: Iterable[Tensor], max_norm: float) -> Tensor:
    gradients = [x.grad.detach() for x in parameters if x.grad is not None]
    if not gradients:
        return ops.zeros(())
    norm = _joint_norm(gradients)
    if not np.isfinite(ops.to_numpy(norm)):  # the squares of finite gradients may overflow float32
        norm = _joint_norm([gradient.to(oneflow.float64) for gradient in gradients])
    factor = (max_norm / (norm + 1e-6)).clamp(max=1.0).to(gradients[0].dtype)
    for gradient in gradients:
        gradient.mul_(factor)
    return norm.to(gradients[0].dtype)


def _joint_norm(tensors: Sequence[Tensor]) -> Tensor:
    norms = [oneflow.linalg.vector_norm(x, 2.0) for x in tensors]
    return oneflow.linalg.vector_norm(oneflow.stack(norms), 2.0)
