"""Choose the number of loader workers, and load the GPU driver."""

from __future__ import annotations

import ctypes
from typing import Any

from duet.backend.checks import CPU
from duet.backend.cores import cores_of_rank
from duet.backend.system import NVIDIA_DRIVER

# Beside a GPU: for the process that queues its work and for all others.
CORES_LEFT = 2
# A mosaic of photographs takes the loader 8 to 10 ms of a core. A YOLOv5n step takes 7 ms per image
# at 96 px on one thread, 20 ms at 320 px on four: two workers keep up with four cores.
CORES_OF_A_WORKER, FEWEST_WORKERS, MOST_WORKERS = 4, 2, 8


def loader_workers(asked: int | None, device: str) -> int:
    """Return the number of loader workers, at most one per core.

    Args:
        asked: the user's choice; None to choose by cores and device.
        device: --device; "" is a GPU if available.
    """
    cores = cores_of_rank()
    if asked is not None:
        return min(asked, cores)
    wanted = cores - CORES_LEFT
    if device == CPU or (not device and load_driver() is None):
        wanted = min(cores // CORES_OF_A_WORKER, MOST_WORKERS)
    return min(max(wanted, FEWEST_WORKERS), cores)


def load_driver() -> Any:
    """Load and initialize the CUDA driver library; None without a driver or GPU."""
    try:
        driver = ctypes.CDLL(NVIDIA_DRIVER)
    except OSError:
        return None
    return driver if driver.cuInit(0) == 0 else None
