"""How many cores of the machine this process may use."""

from __future__ import annotations

import os

from backend.processes import local_world_size


def cores_of_rank() -> int:
    """Return how many cores this process may use, at most its part of its launcher's cores.

    Ranks may be bound to parts of the machine, so the launcher's own cores are divided. Four ranks
    on two nodes of 8 cores have 4 cores each, bound to their node or not. Neither `os.cpu_count`
    nor a launcher says that.
    """
    usable, ranks = len(os.sched_getaffinity(0)), local_world_size()
    if ranks == 1:
        return usable
    return max(1, min(usable, len(os.sched_getaffinity(os.getppid())) // ranks))


def loader_workers(asked: int) -> int:
    """Return how many loader processes to start: those asked for, at most one a core."""
    return min(asked, cores_of_rank())
