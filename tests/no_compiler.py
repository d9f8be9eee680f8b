"""Keeps PyTorch's compiler out of a process of the tests that compiles nothing."""

import sys
from types import SimpleNamespace


def keep_out() -> None:
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
