"""Join the processes of a command; run functions on rank 0 only."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec, TypeVar

from duet import backend
from duet.backend.processes import MEETING_FOLDER, this_process
from duet.utils.errors import UserError
from duet.utils.processes import watchdog
from duet.utils.processes.cores import bind_to_node
from duet.utils.processes.exit_status import ending_in_any_call
from duet.utils.processes.suspend import Suspended
from duet.utils.processes.world import ALONE, World
from duet.utils.system.children import ask_for_signal_when_parent_ends, delay_abort

JOIN_SECONDS, FRAMEWORK_SECONDS = 600, 60
Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


@contextmanager
def joined(
    name: str | None, device: str, timeout_s: float, bind_numa: bool = False
) -> Iterator[World]:
    """Join the other ranks under a watchdog; leave when all have finished.

    With several processes, the framework is imported here; a single process imports it when needed.

    Args:
        name: backend; None for the default.
        timeout_s: how long a rank may go without progress.
        bind_numa: --bind-numa.

    Raises:
        UserError: the address of rank 0 is missing in the environment; or as `bind_to_node`.
    """
    process = this_process()
    if bind_numa:
        bind_to_node(device)
    if process.world_size == 1:
        yield ALONE
        return
    for needed in ("MASTER_ADDR", "MASTER_PORT"):
        if not os.environ.get(needed) and MEETING_FOLDER not in os.environ:
            raise UserError(
                f"RANK and WORLD_SIZE={process.world_size} are set, but {needed} is not; set "
                "MASTER_ADDR and MASTER_PORT to those of rank 0, or unset all and use --nproc"
            )
    with ending_in_any_call(max(timeout_s, JOIN_SECONDS)):
        backend.use(name)
        # The framework's own timeout would end a rank without reporting its phase.
        limit = timeout_s + FRAMEWORK_SECONDS
        backend.dist.start(backend.device.resolve(device), limit)
    delay_abort()
    ask_for_signal_when_parent_ends(0)  # from here on `end_as_orphan` lets a run save its state
    watchdog.start(timeout_s)
    try:
        yield World(process, backend.dist.all_gather)
    except Suspended:  # agreed by all ranks
        backend.dist.stop()
        raise
    backend.dist.stop()


def on_main(function: Callable[Parameters, None]) -> Callable[Parameters, None]:
    """Wrap a function that writes or prints to run on rank 0 only."""

    @wraps(function)
    def run(*args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        if this_process().is_main:
            function(*args, **kwargs)

    return run
