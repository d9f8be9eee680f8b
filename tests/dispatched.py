"""Counts of PyTorch's dispatcher: how many operations, and how often the host waits.

They are counted below autograd. Views and new memory are left out: a GPU launches nothing for them.
"""

import importlib
from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager

from duet.backend import ops
from duet.backend.contract import Stage

# They give the host a number of the device, or sizes that depend on one.
WAITS = ("_local_scalar_dense", "nonzero", "masked_select", "_unique2", "equal", "is_nonzero")


class StageCounter:
    """Knows in which stage of a step it is."""

    stage = ""

    @contextmanager
    def __call__(self, name):
        self.stage = name
        yield
        self.stage = ""


def dispatched(run: Callable[[Stage], object]) -> dict[str, Counter[str]]:
    """Return how often each operation is dispatched during a call, by stage and name."""
    stages, found = StageCounter(), {}
    mode = importlib.import_module("torch.utils._python_dispatch").TorchDispatchMode

    class Counting(mode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            name = function.overloadpacket.__name__
            if name == "index" and any(map(_is_mask, args[1])):
                name = "masked_select"  # how many rows it gives depends on numbers of the device
            if not (name.startswith(("empty", "new_empty")) or is_view(function)):
                found.setdefault(stages.stage, Counter())[name] += 1
            return function(*args, **(kwargs or {}))

    with Counting():
        run(stages)
    return found


def is_view(function) -> bool:
    """Return whether an operation gives its argument's memory and does not write to it."""
    aliases = [value.alias_info for value in function._schema.returns]
    return any(alias is not None and not alias.is_write for alias in aliases)


def _is_mask(index) -> bool:
    return index is not None and ops.dtype_of(index) == "bool"


def total(found: dict[str, Counter[str]]) -> Counter[str]:
    """Return the numbers of all stages."""
    return sum(found.values(), Counter())


def waits(counts: Counter[str]) -> int:
    """Return how often the host waits for what was queued before."""
    return sum(counts[name] for name in WAITS)
