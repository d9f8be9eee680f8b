"""Tensors of emulated GPUs: their operations are queued, and computed on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.emulated.streams import GPU, SHOWN_AS, begin_collective, gpu_of, inside, is_inside, spoil
from tests.frameworks import WAITS, is_view

META, CPU = torch.device("meta"), torch.device("cpu")
ATEN = torch.ops.aten
LACKING = (torch.float64, torch.complex128)  # on a GPU of Apple


class OnGpu(torch.Tensor):
    """A tensor of a GPU; `memory` on the host holds its values once the work is done."""

    memory: torch.Tensor
    gpu: int

    @staticmethod
    def __new__(cls, memory: torch.Tensor, gpu: int) -> OnGpu:
        if SHOWN_AS == "mps" and memory.dtype in LACKING:
            raise TypeError(f"Cannot convert a MPS Tensor to {memory.dtype}")
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            memory.shape,
            strides=memory.stride(),
            storage_offset=memory.storage_offset(),
            dtype=memory.dtype,
            device=inside(gpu),
        )
        made.hold(memory, gpu)
        return made

    def hold(self, memory: torch.Tensor, gpu: int) -> None:
        """Have this memory, and no longer that from before."""
        leave = getattr(self, "_leave", None)
        self.memory, self.gpu, self._leave = memory, gpu, GPU.add(self, memory, gpu)
        if leave is not None:
            leave()

    def __deepcopy__(self, memo: dict[int, Any]) -> torch.Tensor:
        copied = self.detach().clone().requires_grad_(self.requires_grad)
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
        return begin_collective(function, args)
    name, tensors = function.overloadpacket.__name__, flat((args, kwargs))
    target = kwargs.get("device")
    if name == "copy_":
        return copy_into(args[0], args[1], (*args[2:], kwargs.get("non_blocking"))[0])
    if name == "_to_copy" and target is not None:
        return copy_to(torch.device(target), args[0], kwargs)
    if kwargs.get("pin_memory"):
        if SHOWN_AS == "mps":
            raise RuntimeError("Cannot pin memory: no CUDA")
        made = function(*args, **{**kwargs, "pin_memory": False})
        return GPU.lock_pages(spoil(made) if is_empty(function) else made)
    gpus = {x.gpu for x in tensors if isinstance(x, OnGpu)}
    if target is not None and is_inside(target):
        gpus.add(gpu_of(target))
        kwargs = {**kwargs, "device": CPU}
    elif target is not None and gpus:  # as empty_like does
        return function(*mapped(OnGpu, meta_of, args), **kwargs)
    if not gpus:
        return function(*args, **kwargs)
    changed = [id(x) for x in flat(changed_by(function, args))]
    on_host = any((x.ndim or id(x) in changed) and not isinstance(x, OnGpu) for x in tensors)
    if on_host or len(gpus) > 1:
        raise RuntimeError(f"{function}: tensors of two devices")
    if torch.Tag.inplace_view in function.tags:
        raise RuntimeError(f"{function}: a new shape in place is not emulated")
    return queue(function, args, kwargs, gpus.pop())


def queue(function: Any, args: Any, kwargs: dict[str, Any], gpu: int) -> Any:
    """Queue an operation on tensors of a GPU; return its results, which are not there yet."""
    owners = {id(x.memory): x for x in flat((args, kwargs)) if isinstance(x, OnGpu)}
    args, kwargs = mapped(torch.Tensor, as_queued, (args, kwargs))

    def owner_of(memory: torch.Tensor) -> torch.Tensor:
        return owners[id(memory)] if id(memory) in owners else OnGpu(memory, gpu)

    if is_view(function):
        return mapped(torch.Tensor, owner_of, function(*args, **kwargs))
    if not is_empty(function):
        GPU.operations[function.overloadpacket.__name__] += 1
    if tells_the_host(function, args):
        GPU.wait(gpu)
        return mapped(torch.Tensor, owner_of, function(*args, **kwargs))
    if only_writes(function):
        GPU.stream(gpu).put(lambda: run(function, args, kwargs))
        return owner_of(args[0]) if function._schema.returns else None
    results = unwritten_results(function, args, kwargs)
    if is_empty(function):
        return mapped(torch.Tensor, owner_of, results)

    def fill() -> None:
        for result, value in zip(flat(results), flat(run(function, args, kwargs)), strict=True):
            if value.numel():  # the host leaves some out that this device has
                assert value.shape == result.shape, f"{function}: {value.shape}, {result.shape}"
                result.copy_(value)

    GPU.stream(gpu).put(fill)
    return mapped(torch.Tensor, owner_of, results)


def unwritten_results(function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Return memory for the results of an operation, in the layout that meta tensors have."""
    if function is ATEN.upsample_nearest2d.default and not args[0].numel():
        return run(function, args, kwargs)  # 2.13's function of meta tensors fails
    given = mapped(torch.Tensor, layout_of, (args, kwargs))
    if (key := (function, repr(given))) not in _layouts:
        args, kwargs = mapped(torch.Tensor, meta_of, (args, kwargs))
        if "device" in kwargs:
            kwargs = {**kwargs, "device": META}
        _layouts[key] = function(*args, **kwargs)
    return mapped(torch.Tensor, unwritten, _layouts[key])


_layouts: dict[tuple[Any, str], Any] = {}  # meta results; each step has the same


def layout_of(x: torch.Tensor) -> tuple[Any, ...]:
    return x.shape, x.stride(), x.dtype


def copy_to(target: torch.device, x: torch.Tensor, kwargs: dict[str, Any]) -> torch.Tensor:
    """Do as `Tensor.to`, from or to a GPU."""
    options = {name: x for name, x in kwargs.items() if name not in ("device", "non_blocking")}
    to_gpu, non_blocking = is_inside(target), kwargs.get("non_blocking")
    if isinstance(x, OnGpu) and to_gpu:
        require_same(x.gpu, gpu_of(target))
        return queue(ATEN._to_copy.default, (x,), options, x.gpu)
    if not (isinstance(x, OnGpu) or to_gpu):
        return ATEN._to_copy.default(x, **kwargs)
    made = unwritten_results(ATEN._to_copy.default, (x,), options)
    if to_gpu:
        made = OnGpu(made, gpu_of(target))
    elif non_blocking:
        made = GPU.lock_pages(made)
    return copy_into(made, x, non_blocking)


def copy_into(target: torch.Tensor, source: torch.Tensor, non_blocking: Any) -> torch.Tensor:
    """Do as `Tensor.copy_`: only between a GPU and page-locked memory need nobody wait."""
    gpus = [x.gpu for x in (target, source) if isinstance(x, OnGpu)]
    if not gpus:
        return ATEN.copy_.default(target, source)
    require_same(*gpus)
    gpu = gpus[0]
    if len(gpus) == 2:
        return queue(ATEN.copy_.default, (target, source), {}, gpu)
    GPU.operations["copy_"] += 1
    to, of = (x.memory if isinstance(x, OnGpu) else x for x in (target, source))
    GPU.stream(gpu).put(lambda: to.copy_(of))
    if not (non_blocking and GPU.has_locked_pages(source if isinstance(target, OnGpu) else target)):
        GPU.wait(gpu)
    return target


def require_same(*gpus: int) -> None:
    """Raise RuntimeError for several GPUs."""
    if len({*gpus}) > 1:
        raise RuntimeError("a copy to another GPU is not emulated")


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


def changed_by(function: Any, args: Any) -> list[Any]:
    """Return the arguments that an operation writes to."""
    kinds = [argument.alias_info for argument in function._schema.arguments]
    return [x for x, kind in zip(args, kinds, strict=False) if kind is not None and kind.is_write]


def is_empty(function: Any) -> bool:
    """Return whether an operation gives memory that nobody wrote."""
    return function.overloadpacket.__name__.startswith(("empty", "new_empty"))


def as_queued(x: torch.Tensor) -> torch.Tensor:
    """Return what queued work reads of an argument: a number of the host as it is now."""
    return x.memory if isinstance(x, OnGpu) else x.clone()


def run(function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    with torch.no_grad():
        return function(*args, **kwargs)


def meta_of(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=META)


def unwritten(x: torch.Tensor) -> torch.Tensor:
    return spoil(torch.empty_strided(x.shape, x.stride(), dtype=x.dtype))


def mapped(kind: type, function: Callable[..., Any], tree: Any) -> Any:
    """Return arguments or results with what a function makes of each tensor of a kind.

    PyTorch's `tree_map_only` knows more containers, and took a third of all time.
    """
    if isinstance(tree, kind):
        return function(tree)
    if isinstance(tree, (tuple, list)):
        return type(tree)([mapped(kind, function, value) for value in tree])
    if isinstance(tree, dict):
        return {name: mapped(kind, function, value) for name, value in tree.items()}
    return tree


def flat(tree: Any) -> list[torch.Tensor]:
    """Return the tensors in arguments or results."""
    found: list[torch.Tensor] = []
    mapped(torch.Tensor, found.append, tree)
    return found
