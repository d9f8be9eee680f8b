"""How many cores this process may use, and how OpenMP's threads wait for each other.

PyTorch's wheel carries GNU's libgomp, which reads its variables when it is loaded. By default its
threads spin for milliseconds at the end of each loop. On cores that others use too, they take
the time of the very thread they wait for. docs/en/measurements.md has the times. OneFlow 0.9
has no OpenMP: its CPU kernels use one thread.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from duet.backend.processes import local_world_size

CONTROL_GROUPS = Path("/sys/fs/cgroup")
OWN_GROUPS = Path("/proc/self/cgroup")
# Long enough for the gaps of a training step, short beside the turn that a thread gets on a core.
SPINS = 10_000
WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OMP_THREAD_LIMIT")
DIVIDED = "DUET_CORES_DIVIDED"  # OMP_NUM_THREADS is a limit of ours, and no wish of the user

_are_asked_for = False


def choose_threads() -> None:
    """Set the variables for this process and those it starts, unless the user did."""
    global _are_asked_for
    _are_asked_for = DIVIDED not in os.environ and any(name in os.environ for name in THREADS)
    os.environ.update(_chosen(os.environ))


def are_asked_for() -> bool:
    """Return whether the user, or who started this process, set its number of threads."""
    return _are_asked_for


def default_threads() -> int:
    """Return how many threads a library without OpenMP may have: OMP_NUM_THREADS, or one per
    core.
    """
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return int(asked) if asked.isdecimal() and int(asked) else cores_of_rank()


def thread_variables() -> dict[str, str]:
    """Return the variables that are set, whoever set them."""
    return {name: os.environ[name] for name in (*WAITING, *THREADS) if name in os.environ}


def _chosen(environment: Mapping[str, str]) -> dict[str, str]:
    chosen = {}
    if not any(name in environment for name in WAITING):
        chosen["GOMP_SPINCOUNT"] = str(SPINS)
    # Else the framework takes one thread for each physical core that it may run on.
    cores = cores_of_rank()
    if cores < len(os.sched_getaffinity(0)) and not any(name in environment for name in THREADS):
        chosen["OMP_NUM_THREADS"] = str(cores)
    return chosen


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
