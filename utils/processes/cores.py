"""How many loader workers suit this process; and its GPU driver."""

from __future__ import annotations

import ctypes
from typing import Any

from duet.backend.checks import CPU
from duet.backend.cores import cores_of_rank
from duet.backend.devices import NVIDIA_DRIVER

MOST_WORKERS = 8  # that are started unasked
# A mosaic of photographs takes the loader 8 to 10 ms of a core. A step of YOLOv5n takes 7 ms an
# image at 96 px on one thread, 20 ms at 320 px on four: two processes keep up with four cores.
CORES_OF_A_WORKER, FEWEST_WORKERS = 4, 2


def loader_workers(asked: int | None, device: str) -> int:
    """Return how many loader workers to start, at most one per core.

    Args:
        asked: by the user; None for as many as the cores and the device are for.
        device: as --device has it: "" is a GPU if there is one.
    """
    cores = cores_of_rank()
    if asked is not None:
        return min(asked, cores)
    wanted = MOST_WORKERS
    if device == CPU or (not device and load_driver() is None):
        wanted = min(wanted, max(FEWEST_WORKERS, cores // CORES_OF_A_WORKER))
    return min(wanted, cores)


def load_driver() -> Any:
    """Load and initialize CUDA's driver library; None if there is no driver or no GPU."""
    try:
        driver = ctypes.CDLL(NVIDIA_DRIVER)
    except OSError:
        return None
    return driver if driver.cuInit(0) == 0 else None
