"""Join the processes that run one command together, and do on the first what it alone does.

Before: a launcher started them. After: `train.py` and `val.py` work in this `World`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec, TypeVar

import backend
from backend.processes import this_process
from utils.cli.run_config import RunConfig
from utils.errors import UserError
from utils.processes import watchdog
from utils.processes.process_family import ending_after_sigterm
from utils.processes.world import ALONE, World

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


@contextmanager
def joined(config: RunConfig, was_terminated: bool = False) -> Iterator[World]:
    """Work with the other ranks, which a watchdog watches; leave when all have come to the end.

    Of several processes each imports its framework here, before any work is shared; one that is
    alone does it when it needs it. Who answers SIGTERM does so again from then on.

    Raises:
        UserError: the environment does not say where the others are.
    """
    place = this_process()
    if place.world_size == 1:
        yield ALONE
        return
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        if not os.environ.get(name):
            raise UserError(
                f"RANK and WORLD_SIZE={place.world_size} are set, but {name} is not; set it to "
                "where rank 0 listens, or unset them and use --nproc"
            )
    with ending_after_sigterm(was_terminated):
        backend.use(config.backend)
        backend.dist.start(backend.device.resolve(config.device), config.timeout)
        watchdog.start(config.timeout, backend.dist.all_gather)
    yield World(place, backend.dist.all_gather)
    backend.dist.stop()


def on_main(function: Callable[Parameters, None]) -> Callable[Parameters, None]:
    """A function that the first rank runs, and the others skip: it writes or prints."""

    @wraps(function)
    def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        if this_process().is_main:
            function(*args, **kwargs)

    return run
