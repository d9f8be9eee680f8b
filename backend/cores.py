"""How many cores this process may use: by affinity, ranks of its launcher, container quota."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

from backend.processes import local_world_size

CONTROL_GROUPS = Path("/sys/fs/cgroup")
OWN_GROUPS = Path("/proc/self/cgroup")


def usable_cores() -> int:
    """Return how many cores this process may use, the quota of its control groups included.

    A container on a large machine often sees all cores and may use the time of a few.
    """
    return max(1, min([len(os.sched_getaffinity(0)), *_quotas()]))


def cores_of_rank() -> int:
    """Return how many cores this process may use, at most its part of its launcher's cores.

    Ranks may be bound to parts of the machine, so the launcher's own cores are divided. Four ranks
    on two nodes of 8 cores have 4 cores each, bound to their node or not. Neither `os.cpu_count`
    nor a launcher says that.
    """
    usable, ranks = usable_cores(), local_world_size()
    if ranks == 1:
        return usable
    of_launcher = min([len(os.sched_getaffinity(os.getppid())), *_quotas()])
    return max(1, min(usable, of_launcher // ranks))


def _quotas() -> Iterator[int]:
    """Yield the limits of this process's control groups, in cores, rounded up."""
    for folder in _group_folders():
        for names in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):  # versions 2, 1
            try:
                words = [word for name in names for word in (folder / name).read_text().split()]
                quota, period = map(int, words)
            except (OSError, ValueError):  # no such file, or "max"
                continue
            if quota > 0 and period > 0:
                yield math.ceil(quota / period)


def _group_folders() -> Iterator[Path]:
    """Yield the folders of this process's control groups and of those around them."""
    try:
        lines = OWN_GROUPS.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        root = CONTROL_GROUPS / controllers if controllers else CONTROL_GROUPS
        group = root / path.lstrip("/")
        yield from (group, *(parent for parent in group.parents if parent.is_relative_to(root)))
