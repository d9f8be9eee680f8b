"""How many cores are this process's share of the machine."""

from __future__ import annotations

import os

from backend.processes import local_world_size


def core_share() -> int:
    """The cores that this process may use, at most its part of what its launcher may use.

    The launcher is asked, since ranks may have been bound to a part of the machine each: four
    ranks on two nodes of 8 cores have 4 cores each, whether they are bound to their node or not.
    Neither `os.cpu_count` nor a launcher says that.
    """
    usable, ranks = len(os.sched_getaffinity(0)), local_world_size()
    if ranks == 1:
        return usable
    return max(1, min(usable, len(os.sched_getaffinity(os.getppid())) // ranks))


def loader_workers(asked: int) -> int:
    """Return how many loader processes to start: those asked for, at most one a core."""
    return min(asked, core_share())
