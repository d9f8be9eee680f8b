"""How OpenMP's threads wait for each other, and how many there are: chosen before the import.

PyTorch's wheel carries GNU's libgomp, which reads these variables when it is loaded. By default its
threads spin for milliseconds at the end of each loop. On cores that others use too, they take
the time of the very thread they wait for. docs/en/performance.md has what was measured. OneFlow 0.9
has no OpenMP: its CPU kernels use one thread.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from backend.cores import cores_of_rank

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
