"""Gradients for PyTorch; documented in `contract.Autograd`."""

import functools
import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.nn import Module
from torch.utils._pytree import tree_leaves, tree_map_only

from duet.backend import checks, modules, updates
from duet.backend.devices import MPS
from duet.backend.torch import ops

P = ParamSpec("P")
R = TypeVar("R")
KINDS = (checks.CPU, "cuda", MPS)  # of devices
log = logging.getLogger("backend")

_left_out = 0  # compiled functions without a CUDA graph that were already reported


variable = modules.variable
value_and_backward = updates.value_and_backward


@contextmanager
def no_grad() -> Iterator[None]:
    with torch.no_grad(), _without_autocast():
        yield


@contextmanager
def recording() -> Iterator[None]:
    with torch.enable_grad(), _without_autocast():
        yield


def _without_autocast() -> ExitStack:
    """Return a context that computes in the tensors' own dtypes, whatever the caller has set."""
    contexts = ExitStack()
    for kind in filter(torch.is_autocast_enabled, KINDS):
        contexts.enter_context(torch.autocast(kind, enabled=False))
    return contexts


def gradients(output: Tensor, inputs: Sequence[Tensor]) -> list[Tensor]:
    checks.scalar_output(output.shape, (x.requires_grad for x in inputs))
    if not output.requires_grad:
        return [torch.zeros_like(x) for x in inputs]
    found = torch.autograd.grad(output, list(inputs), allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for x, g in zip(inputs, found, strict=True)]


def copy_gradients(parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return exact copies of the current gradients by name."""
    gradients = {name: grad for name, x in parameters.items() if (grad := x.grad) is not None}
    if not gradients:
        return {}
    # One launch on a GPU; multiplying by 1 keeps every bit, including the sign of zero.
    return dict(zip(gradients, torch._foreach_mul(list(gradients.values()), 1.0), strict=True))


@functools.cache
def compile_problem(device: str) -> str | None:
    x = torch.ones(8, device=device, requires_grad=True)
    try:
        # The compiler itself uses deprecated functions.
        with recording(), modules.warnings_ignored():
            torch.compile(lambda x: (torch.sigmoid(x) * x).sum())(x).backward()
    except Exception as error:  # the compiler is missing or broken
        return _first_line(error)
    return None


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def compiled(
    function: Callable[P, R], most_shapes: int = 1, graphs: bool = False
) -> Callable[P, R]:
    optimized = torch.compile(function, dynamic=False, mode="reduce-overhead" if graphs else None)
    run = _for_shapes(function, optimized, most_shapes)
    return _with_graphs(function, run) if graphs else run


def _with_graphs(function: Callable[P, R], run: Callable[P, R]) -> Callable[P, R]:
    """Return a wrapper that runs a function as CUDA graphs.

    Each pass overwrites the graphs' memory, which holds results and gradients. So 0-d results are
    copied on return, and gradients not yet consumed by an update when the next pass begins.
    """
    trained = dict(function.named_parameters()) if isinstance(function, Module) else None

    def run_in_graphs(*inputs: P.args, **options: P.kwargs) -> R:
        if trained is not None:  # a pass begins
            for name, gradient in copy_gradients(trained).items():
                trained[name].grad = gradient
            torch.compiler.cudagraph_mark_step_begin()
        _warn_if_no_graph("a gradient")  # compiled in the last backward pass
        found = run(*inputs, **options)
        _warn_if_no_graph(_name(function))
        copied: R = tree_map_only(Tensor, lambda x: x if x.ndim else x.clone(), found)
        return copied

    return run_in_graphs


def _warn_if_no_graph(name: str) -> None:
    """Warn if PyTorch compiled a function without recording a CUDA graph."""
    global _left_out
    compiler = sys.modules.get("torch._dynamo.utils")
    number = compiler.counters["inductor"]["cudagraph_skips"] if compiler else 0
    if number > _left_out:
        reason = "set TORCH_LOGS=cudagraphs to see why"
        log.warning("%s is compiled, but not as a graph: %s", name, reason)
    _left_out = number


def _name(function: object) -> str:
    return str(getattr(function, "__qualname__", type(function).__name__))


def _for_shapes(
    function: Callable[P, R], optimized: Callable[P, R], most_shapes: int
) -> Callable[P, R]:
    """Return a wrapper that is compiled for the first sets of shapes and eager for others."""
    seen: set[tuple[torch.Size, ...]] = set()
    refused: set[tuple[torch.Size, ...]] = set()
    name = _name(function)

    def run(*inputs: P.args, **options: P.kwargs) -> R:
        shapes = tuple(x.shape for x in tree_leaves(inputs) if isinstance(x, Tensor))
        if shapes not in seen | refused and len(seen) >= most_shapes:
            refused.add(shapes)
            log.info("%s runs eagerly for further input sizes: %s", name, tuple(shapes[0]))
        if shapes in refused:
            return function(*inputs, **options)
        if shapes in seen:
            return optimized(*inputs, **options)
        seen.add(shapes)
        start = time.perf_counter()
        try:
            with modules.warnings_ignored():
                result = optimized(*inputs, **options)
        except Exception as error:  # if the function itself fails, the next line raises again
            result = function(*inputs, **options)
            refused.add(shapes)
            log.warning("%s is not compiled: %s", name, _first_line(error))
            return result
        log.info("compiled %s in %.0f s", name, time.perf_counter() - start)
        return result

    return run


def clip_gradients(parameters: Iterable[Tensor], max_norm: float) -> Tensor:
    gradients = [x.grad for x in parameters if x.grad is not None]
    if not gradients:
        return torch.zeros(())
    with torch.no_grad():
        norm, dtype = _joint_norm(gradients), gradients[0].dtype
        # In the gradients' dtype: with another one, a GPU would need a launch per gradient.
        factor = (max_norm / (norm + 1e-6)).clamp(max=1.0).to(dtype)
        torch._foreach_mul_(gradients, factor)
    return norm.to(dtype)


def _joint_norm(gradients: list[Tensor]) -> Tensor:
    """Return the global L2 norm, which stays finite for finite gradients but on an Apple GPU.

    float64 sums take twenty times as long on a CPU, where checking the result is free. On a GPU the
    check would stall the device.
    """
    has_float64 = gradients[0].device.type != MPS
    if ops.reads_at_once(gradients[0]) or not has_float64:
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients, 2)))
        if not has_float64 or norm.isfinite():
            return norm
    return torch.linalg.vector_norm(
        torch.stack(torch._foreach_norm(gradients, 2, dtype=torch.float64))
    )
