"""Mixed precision for PyTorch; documented in `contract.Amp`."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.parallel import DistributedDataParallel

from duet.backend import checks
from duet.backend.checks import CPU
from duet.backend.devices import MPS
from duet.backend.torch.device import present
from duet.backend.torch.ops import HALF_DTYPES


def supported(device: str) -> tuple[str, ...]:
    named = torch.device(present(device))
    if named.type == MPS:
        return ()
    # bfloat16 is emulated below compute capability 8.
    if named.type == "cuda" and torch.cuda.get_device_capability(named)[0] < 8:
        return ("float16",)
    return tuple(HALF_DTYPES)


def preferred(device: str) -> str:
    named = torch.device(present(device))
    if named.type in (CPU, MPS):
        return "float32"
    # Tensor cores came with compute capability 7, for float16 only; 8 added bfloat16, in which
    # gradients do not overflow. Older GPUs are not faster in half precision.
    major = torch.cuda.get_device_capability(named)[0]
    return "bfloat16" if major >= 8 else "float16" if major == 7 else "float32"


def autocast(device: str, dtype: str) -> AbstractContextManager[Any]:
    checks.half_precision(dtype, supported(device), device)
    if dtype == "float32":
        return nullcontext()
    return torch.autocast(torch.device(device).type, HALF_DTYPES[dtype])


def cast_together(module: torch.nn.Module, dtype: str) -> AbstractContextManager[None]:
    if dtype not in HALF_DTYPES or isinstance(module, DistributedDataParallel):
        return nullcontext()
    return _cast_together(module, HALF_DTYPES[dtype])


def cast_for_good(module: torch.nn.Module, dtype: str) -> None:
    for kept, name, x in _of_convolutions(module):
        kept[name] = torch.nn.Parameter(x.detach().to(HALF_DTYPES[dtype]), False)


def _of_convolutions(module: torch.nn.Module) -> list[tuple[dict[str, Any], str, Tensor]]:
    """Return the convolutions' weights and biases, with the places that hold them."""
    return [
        (part._parameters, name, x)
        for part in module.modules()
        if isinstance(part, torch.nn.Conv2d)
        for name, x in part._parameters.items()
        if x is not None
    ]


@contextmanager
def _cast_together(module: torch.nn.Module, dtype: torch.dtype) -> Iterator[None]:
    places = _of_convolutions(module)
    halves = _CastTogether.apply(dtype, *(x for _, _, x in places)) if places else ()
    try:
        for (kept, name, _), half in zip(places, halves, strict=True):
            kept[name] = half
        yield
    finally:
        for kept, name, x in places:
            kept[name] = x


class _CastTogether(torch.autograd.Function):
    """Cast many tensors per launch; gradients come back in the original dtype."""

    @staticmethod
    def forward(ctx: Any, dtype: torch.dtype, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.dtype = tensors[0].dtype
        ctx.set_materialize_grads(False)  # weights unused in a pass get no gradient
        copies = _copied(tensors, dtype)
        # Otherwise the backward pass would run through frozen layers and keep their maps.
        needed = zip(copies, ctx.needs_input_grad[1:], strict=True)
        ctx.mark_non_differentiable(*(copy for copy, is_needed in needed if not is_needed))
        return tuple(copies)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        copied = iter(_copied([x for x in gradients if x is not None], ctx.dtype))
        return None, *(None if x is None else next(copied) for x in gradients)


def _copied(tensors: Sequence[Tensor], dtype: torch.dtype) -> list[Tensor]:
    copies = [torch.empty_like(x, dtype=dtype) for x in tensors]
    if copies:
        torch._foreach_copy_(copies, list(tensors))
    return copies


def scale_gradients_(parameters: Iterable[Tensor], factor: float) -> None:
    gradients = [x.grad for x in parameters if x.grad is not None]
    if gradients:
        torch._foreach_mul_(gradients, factor)
