"""Join the processes that run one command together; run some functions on rank 0 only."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec, TypeVar

from duet import backend
from duet.backend.processes import MEETING_FOLDER, this_process
from duet.utils.errors import UserError
from duet.utils.processes import watchdog
from duet.utils.processes.process_family import delay_abort, ending_in_any_call
from duet.utils.processes.suspend import Suspended
from duet.utils.processes.world import ALONE, World

JOIN_SECONDS, FRAMEWORK_SECONDS = 600, 60
Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


@contextmanager
def joined(name: str | None, device: str, timeout_s: float) -> Iterator[World]:
    """Join the other ranks under a watchdog; leave when all have come to the end.

    Each of several processes imports its framework here, before their common work. A process that
    is alone imports it when it is needed.

    Args:
        name: of the backend; None for the one that is chosen by default.
        timeout_s: how long a rank may make no progress.

    Raises:
        UserError: the environment does not say where rank 0 is.
    """
    process = this_process()
    if process.world_size == 1:
        yield ALONE
        return
    for needed in ("MASTER_ADDR", "MASTER_PORT"):
        if not os.environ.get(needed) and MEETING_FOLDER not in os.environ:
            raise UserError(
                f"RANK and WORLD_SIZE={process.world_size} are set, but {needed} is not; set it to "
                "where rank 0 listens, or unset them and use --nproc"
            )
    with ending_in_any_call(max(timeout_s, JOIN_SECONDS)):
        backend.use(name)
        # A framework's own limit would end a rank without naming its phase.
        limit = timeout_s + FRAMEWORK_SECONDS
        backend.dist.start(backend.device.resolve(device), limit)
    delay_abort()
    watchdog.start(timeout_s)
    try:
        yield World(process, backend.dist.all_gather)
    except Suspended:  # as all ranks have agreed
        backend.dist.stop()
        raise
    backend.dist.stop()


def on_main(function: Callable[Parameters, None]) -> Callable[Parameters, None]:
    """Make rank 0 run a function that writes or prints, and the other ranks skip it."""

    @wraps(function)
    def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        if this_process().is_main:
            function(*args, **kwargs)

    return run
