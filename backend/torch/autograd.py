"""Gradients under PyTorch; `contract.Autograd` says what each function promises."""

from __future__ import annotations

import functools
import logging
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import Module
from torch.utils._pytree import tree_leaves, tree_map_only

from duet.backend import checks, modules
from duet.backend.torch import ops

log = logging.getLogger("backend")

_left_out = 0  # compiled functions that were not recorded, as far as it was told


value_and_backward = modules.value_and_backward


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


def copy_gradients(parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return copies of the present gradients by name, bit for bit."""
    gradients = {name: grad for name, x in parameters.items() if (grad := x.grad) is not None}
    if not gradients:
        return {}
    # One launch on a GPU; times 1 keeps every bit, the sign of zero too.
    return dict(zip(gradients, torch._foreach_mul(list(gradients.values()), 1.0), strict=True))


@functools.cache
def compile_problem(device: str) -> str | None:
    x = torch.ones(8, device=device, requires_grad=True)
    try:
        with _own_warnings_ignored():
            torch.compile(lambda x: (torch.sigmoid(x) * x).sum())(x).backward()
    except Exception as error:  # the compiler is missing or broken
        return _first_line(error)
    return None


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def compiled(
    function: Callable[..., Any], most_shapes: int = 1, graphs: bool = False
) -> Callable[..., Any]:
    optimized = torch.compile(function, dynamic=False, mode="reduce-overhead" if graphs else None)
    run = _for_shapes(function, optimized, most_shapes)
    return _with_graphs(function, run) if graphs else run


def _with_graphs(function: Callable[..., Any], run: Callable[..., Any]) -> Callable[..., Any]:
    """Return what runs a function in graphs, whose memory the next pass overwrites.

    The results and gradients of a graph lie there. What outlives a pass is copied: numbers as they
    are returned, gradients when the next pass begins, if no update has used them up by then.
    """
    trained = dict(function.named_parameters()) if isinstance(function, Module) else None

    def run_in_graphs(*inputs: Any) -> Any:
        if trained is not None:  # a pass begins
            for name, gradient in copy_gradients(trained).items():
                trained[name].grad = gradient
            torch.compiler.cudagraph_mark_step_begin()
        _tell_left_out("a gradient")  # which is compiled in the backward pass
        found = run(*inputs)
        _tell_left_out(_name(function))
        return tree_map_only(Tensor, _own_number, found)

    return run_in_graphs


def _own_number(x: Tensor) -> Tensor:
    return x.clone() if x.ndim == 0 else x


def _tell_left_out(name: str) -> None:
    """Tell if PyTorch, for reasons of its own, has left a function of this name unrecorded."""
    global _left_out
    compiler = sys.modules.get("torch._dynamo.utils")
    number = compiler.counters["inductor"]["cudagraph_skips"] if compiler else 0
    if number > _left_out:
        reason = "TORCH_LOGS=cudagraphs says why"
        log.warning("%s is compiled, but not as a graph: %s", name, reason)
    _left_out = number


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__qualname__", type(function).__name__))


def _for_shapes(
    function: Callable[..., Any], optimized: Callable[..., Any], most_shapes: int
) -> Callable[..., Any]:
    """Return what runs the compiled form for the first sets of shapes, and the plain one else."""
    seen: set[tuple[Any, ...]] = set()
    refused: set[tuple[Any, ...]] = set()
    name = _name(function)

    def run(*inputs: Any) -> Any:
        shapes = tuple(x.shape for x in tree_leaves(inputs) if isinstance(x, Tensor))
        if shapes not in seen | refused and len(seen) >= most_shapes:
            refused.add(shapes)
            log.info("%s runs eagerly for inputs of another size: %s", name, tuple(shapes[0]))
        if shapes in refused:
            return function(*inputs)
        if shapes in seen:
            return optimized(*inputs)
        seen.add(shapes)
        start = time.perf_counter()
        try:
            with _own_warnings_ignored():
                result = optimized(*inputs)
        except Exception as error:  # of the compiler, or of the function, which then repeats it
            result = function(*inputs)
            refused.add(shapes)
            log.warning("%s is not compiled: %s", name, _first_line(error))
            return result
        log.info("compiled %s in %.0f s", name, time.perf_counter() - start)
        return result

    return run


@contextmanager
def _own_warnings_ignored() -> Iterator[None]:
    """Ignore warnings that PyTorch's compiler causes by its own use of deprecated functions."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def clip_gradients(parameters: Iterable[Tensor], max_norm: float) -> Tensor:
    gradients = [x.grad for x in parameters if x.grad is not None]
    if not gradients:
        return torch.zeros(())
    with torch.no_grad():
        norm, dtype = _joint_norm(gradients), gradients[0].dtype
        # In the gradients' dtype: by another one they would be multiplied one by one on a GPU.
        factor = (max_norm / (norm + 1e-6)).clamp(max=1.0).to(dtype)
        torch._foreach_mul_(gradients, factor)
    return norm.to(dtype)


def _joint_norm(gradients: list[Tensor]) -> Tensor:
    """Return the L2 norm of all together, which the squares of finite ones do not overflow.

    A CPU takes twenty times as long for sums in float64, and reads a number at once. A GPU that has
    to tell a number stands still meanwhile.
    """
    if ops.reads_at_once(gradients[0]):
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients, 2)))
        if norm.isfinite():
            return norm
    return torch.linalg.vector_norm(
        torch.stack(torch._foreach_norm(gradients, 2, dtype=torch.float64))
    )
