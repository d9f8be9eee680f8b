"""What tests do to a framework: keep its compiler out, let its memory end, count its operations.

Nothing of Duet is imported before it is needed: some processes begin with this file.
"""

import importlib
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager
from types import SimpleNamespace
from typing import NoReturn


def keep_compiler_out() -> None:
    """Do without the compiler's modules from now on.

    DistributedDataParallel and the optimizers ask for its modes, and would import it: a second.
    """
    sys.modules.setdefault(
        "torch._dynamo",
        SimpleNamespace(  # type: ignore[arg-type]
            disable=lambda function, *_, **__: function,
            mark_dynamic=lambda tensor, dimension: None,
            utils=SimpleNamespace(get_optimize_ddp_mode=lambda: "no_optimization"),
            config=SimpleNamespace(_get_optimize_ddp_mode=lambda: "no_optimization"),  # 2.4
            trace_rules=SimpleNamespace(clear_lru_cache=lambda: None),
        ),
    )


def run_out_of_memory() -> NoReturn:
    """Raise the error by which the backend says so.

    PyTorch is asked for more than an address can name. OneFlow 0.9 would end the process: its
    message stands in for it, as it printed it then.
    """
    from duet import backend

    if backend.use() == "torch":
        backend.ops.zeros((1 << 48,), "float64")
    raise RuntimeError("\x1b[1m\x1b[38;2;255;000;000mError\x1b[0m: allocate failed")


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


def dispatched(run: Callable[[StageCounter], object]) -> dict[str, Counter[str]]:
    """Return how often each operation is dispatched during a call, by stage and name.

    They are counted below autograd. Views and new memory are left out: a GPU launches nothing for
    them.
    """
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
    from duet.backend import ops

    return index is not None and ops.dtype_of(index) == "bool"


def total(found: dict[str, Counter[str]]) -> Counter[str]:
    """Return the numbers of all stages."""
    return sum(found.values(), Counter())


def waits(counts: Counter[str]) -> int:
    """Return how often the host waits for what was queued before."""
    return sum(counts[name] for name in WAITS)
