"""Cores available to this process, and how OpenMP threads wait for each other.

PyTorch's wheel bundles GNU libgomp, which reads its variables when it is loaded. By default its
threads spin for milliseconds at the end of each loop; on shared cores they take time from the
very thread they wait for. docs/en/measurements.md has times. OneFlow 0.9 has no OpenMP: its
CPU kernels are single-threaded.
"""

import math
import os
from collections.abc import Iterator, Mapping

from duet.backend.processes import local_world_size
from duet.backend.system import cores_of, group_folders

# Long enough for the gaps in a training step, short compared with a scheduler time slice.
SPINS = 10_000
WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OMP_THREAD_LIMIT")
DIVIDED = "DUET_CORES_DIVIDED"  # we set OMP_NUM_THREADS, not the user

_are_asked_for = False


def choose_threads() -> None:
    """Set the variables for this process and its children, unless the user did."""
    global _are_asked_for
    _are_asked_for = DIVIDED not in os.environ and any(name in os.environ for name in THREADS)
    os.environ.update(_chosen(os.environ))


def are_asked_for() -> bool:
    return _are_asked_for


def default_threads() -> int:
    """Return the number of threads for a library without OpenMP: OMP_NUM_THREADS or the cores."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return int(asked) if asked.isdecimal() and int(asked) else cores_of_rank()


def thread_variables() -> dict[str, str]:
    """Return the variables that are set, by us or by the user."""
    return {name: os.environ[name] for name in (*WAITING, *THREADS) if name in os.environ}


def _chosen(environment: Mapping[str, str]) -> dict[str, str]:
    chosen = {}
    if not any(name in environment for name in WAITING):
        chosen["GOMP_SPINCOUNT"] = str(SPINS)
    # The framework would otherwise start one thread per physical core in its affinity mask.
    cores = cores_of_rank()
    if cores < len(cores_of()) and not any(name in environment for name in THREADS):
        chosen["OMP_NUM_THREADS"] = str(cores)
    return chosen


def usable_cores() -> int:
    """Return the number of cores this process may use, considering cgroup quotas.

    A container on a large machine often sees all cores but may use only a few.
    """
    return max(1, min([len(cores_of()), *_quotas()]))


def cores_of_rank() -> int:
    """Return the number of cores this process may use, at most its part of the launcher's cores.

    Ranks may be bound to parts of the machine, so the launcher's own cores are divided: four ranks
    on two NUMA nodes of 8 cores get 4 cores each, bound to a node or not. Neither `os.cpu_count`
    nor a launcher reports that.
    """
    usable, ranks = usable_cores(), local_world_size()
    if ranks == 1:
        return usable
    launcher_cores = min([len(cores_of(os.getppid())), *_quotas()])
    return max(1, min(usable, launcher_cores // ranks))


def _quotas() -> Iterator[int]:
    """Yield the limits of this process's control groups in cores, rounded up."""
    for folder in group_folders("cpu"):
        for names in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):  # versions 2, 1
            try:
                words = [
                    word
                    for name in names
                    for word in (folder / name).read_text(encoding="utf-8").split()
                ]
                quota, period = map(int, words)
            except (OSError, ValueError):  # no such file, or "max"
                continue
            if quota > 0 and period > 0:
                yield math.ceil(quota / period)
