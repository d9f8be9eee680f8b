"""Tensors of emulated GPUs: their operations are queued, and computed on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from tests.dispatched import WAITS, is_view
from tests.emulated import collectives
from tests.emulated.names import gpu_of, inside, is_inside
from tests.emulated.streams import GPU, spoil

META, CPU = torch.device("meta"), torch.device("cpu")
ATEN = torch.ops.aten


class OnGpu(torch.Tensor):
    """A tensor of a GPU; `memory` on the host holds its values once the work is done."""

    memory: torch.Tensor
    gpu: int

    @staticmethod
    def __new__(cls, memory: torch.Tensor, gpu: int) -> OnGpu:
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            memory.shape,
            strides=memory.stride(),
            storage_offset=memory.storage_offset(),
            dtype=memory.dtype,
            device=inside(gpu),
        )
        made.memory, made.gpu = memory, gpu
        GPU.add(made, memory, gpu)
        return made

    def take_over(self, other: OnGpu) -> None:
        """Have the memory of another tensor, as `x.data = other` lets one."""
        self.memory, self.gpu = other.memory, other.gpu
        GPU.add(self, self.memory, self.gpu)

    def __deepcopy__(self, memo: dict[int, Any]) -> torch.Tensor:
        # PyTorch's would copy `memory` too, before the work is done.
        copied = self.detach().clone()
        if isinstance(self, torch.nn.Parameter):
            copied = torch.nn.Parameter(copied, self.requires_grad)
        memo[id(self)] = copied
        return copied

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return dispatch(function, args, kwargs or {})


class Dispatch(TorchDispatchMode):
    """Takes the operations that have no tensor of the device yet."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return dispatch(function, args, kwargs or {})


def dispatch(function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Run an operation on the host, or queue it on a GPU."""
    if function.namespace == "c10d":
        return collectives.begin(function, args)
    name, tensors = function.overloadpacket.__name__, flat((args, kwargs))
    target = kwargs.get("device")
    if name == "copy_":
        return copy_into(args[0], args[1], (*args[2:], kwargs.get("non_blocking"))[0])
    if name == "_to_copy" and target is not None:
        return copy_to(torch.device(target), args[0], kwargs)
    if kwargs.get("pin_memory"):
        return GPU.lock_pages(spoil(function(*args, **{**kwargs, "pin_memory": False})))
    gpus = {x.gpu for x in tensors if isinstance(x, OnGpu)}
    if target is not None and is_inside(target):
        gpus.add(gpu_of(target))
        kwargs = {**kwargs, "device": CPU}
    elif target is not None and gpus:  # as empty_like does
        return function(*tree_map_only(OnGpu, meta_of, args), **kwargs)
    if not gpus:
        return function(*args, **kwargs)
    if len(gpus) > 1 or any(x.ndim and not isinstance(x, OnGpu) for x in tensors):
        raise RuntimeError(f"{function}: tensors of two devices")
    return queue(function, args, kwargs, gpus.pop())


def queue(function: Any, args: Any, kwargs: dict[str, Any], gpu: int) -> Any:
    """Queue an operation on tensors of a GPU; return its results, which are not there yet."""
    owners = {id(x.memory): x for x in flat((args, kwargs)) if isinstance(x, OnGpu)}
    args, kwargs = tree_map_only(OnGpu, lambda x: x.memory, (args, kwargs))

    def owner_of(memory: torch.Tensor) -> torch.Tensor:
        return owners[id(memory)] if id(memory) in owners else OnGpu(memory, gpu)

    if is_view(function):
        return tree_map_only(torch.Tensor, owner_of, function(*args, **kwargs))
    if tells_the_host(function, args):
        GPU.wait(gpu)
        return tree_map_only(torch.Tensor, owner_of, function(*args, **kwargs))
    if only_writes(function):
        GPU.stream(gpu).put(lambda: run(function, args, kwargs))
        return owner_of(args[0]) if function._schema.returns else None
    results = unwritten_results(function, args, kwargs)

    def fill() -> None:
        for result, value in zip(flat(results), flat(run(function, args, kwargs)), strict=True):
            if value.numel() == result.numel():  # else an empty one, which this device leaves out
                result.copy_(value)

    GPU.stream(gpu).put(fill)
    return tree_map_only(torch.Tensor, owner_of, results)


def unwritten_results(function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Return memory for the results of an operation, in the layout that meta tensors have."""
    if function is ATEN.upsample_nearest2d.default and not args[0].numel():
        return run(function, args, kwargs)  # 2.13's function of meta tensors fails
    args, kwargs = tree_map_only(torch.Tensor, meta_of, (args, kwargs))
    if "device" in kwargs:
        kwargs = {**kwargs, "device": META}
    return tree_map_only(torch.Tensor, unwritten, function(*args, **kwargs))


def copy_to(target: torch.device, x: torch.Tensor, kwargs: dict[str, Any]) -> torch.Tensor:
    """Do as `Tensor.to`, from or to the device."""
    options = {name: x for name, x in kwargs.items() if name not in ("device", "non_blocking")}
    if isinstance(x, OnGpu) and is_inside(target):
        if x.gpu != gpu_of(target):
            raise RuntimeError("a copy to another GPU: it is not emulated")
        return queue(ATEN._to_copy.default, (x,), options, x.gpu)
    if isinstance(x, OnGpu):
        GPU.wait(x.gpu)
        return ATEN._to_copy.default(x.memory, **options)
    if not is_inside(target):
        return ATEN._to_copy.default(x, **kwargs)
    made = OnGpu(unwritten_results(ATEN._to_copy.default, (x,), options), gpu_of(target))
    return copy_into(made, x, kwargs.get("non_blocking"))


def copy_into(target: torch.Tensor, source: torch.Tensor, non_blocking: Any) -> torch.Tensor:
    """Do as `Tensor.copy_`: only between a GPU and page-locked memory need nobody wait."""
    gpus = {x.gpu for x in (target, source) if isinstance(x, OnGpu)}
    if not gpus:
        return ATEN.copy_.default(target, source)
    if len(gpus) == 2:
        raise RuntimeError("a copy to another GPU: it is not emulated")
    gpu = gpus.pop()
    on_host = [x for x in (target, source) if not isinstance(x, OnGpu)]
    if not on_host:
        return queue(ATEN.copy_.default, (target, source), {}, gpu)
    to, of = (x.memory if isinstance(x, OnGpu) else x for x in (target, source))
    GPU.stream(gpu).put(lambda: to.copy_(of))
    if not (non_blocking and GPU.has_locked_pages(on_host[0])):
        GPU.wait(gpu)
    return target


def tells_the_host(function: Any, args: Any) -> bool:
    """Return whether the host learns a number of the device, or a size that depends on one."""
    name = function.overloadpacket.__name__
    masked = name in ("index", "index_put_") and any(
        x is not None and x.dtype == torch.bool for x in args[1]
    )
    return masked or name in WAITS


def only_writes(function: Any) -> bool:
    """Return whether all that an operation gives is its changed arguments."""
    aliases = [value.alias_info for value in function._schema.returns]
    return all(alias is not None and alias.is_write for alias in aliases)


def run(function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    with torch.no_grad():
        return function(*args, **kwargs)


def meta_of(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=META)


def unwritten(x: torch.Tensor) -> torch.Tensor:
    return spoil(torch.empty_strided(x.shape, x.stride(), dtype=x.dtype))


def flat(tree: Any) -> list[torch.Tensor]:
    """Return the tensors in arguments or results."""
    found: list[torch.Tensor] = []
    tree_map_only(torch.Tensor, found.append, tree)
    return found
