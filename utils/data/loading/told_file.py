"""A file without a name that the processes of a machine open together.

Before: one of them makes it and tells the others where. After: `image_cache.py`,
`recent_images.py`.

No process, however it ends, leaves such a file behind.
"""

from __future__ import annotations

import os

import numpy as np

from utils.errors import DatasetError
from utils.processes.world import World


def tell_file(descriptor: int) -> np.ndarray:
    """Return (4,) int64 by which processes of the same user and machine find this open file."""
    status = os.fstat(descriptor)
    identity = np.array([status.st_dev, status.st_ino], np.uint64).view(np.int64)
    return np.concatenate([np.array([os.getpid(), descriptor], np.int64), identity])


def open_told_file(told: np.ndarray) -> int:
    """Return a new descriptor of the file that `tell_file` told of.

    Raises:
        OSError: it is not there, or may not be opened.
    """
    process_id, number = told[:2].tolist()
    descriptor = os.open(f"/proc/{process_id}/fd/{number}", os.O_RDWR)
    if not np.array_equal(tell_file(descriptor)[2:], told[2:]):
        os.close(descriptor)
        raise FileNotFoundError(f"process {process_id} has another file there")
    return descriptor


def share_file(descriptor: int, number: int, flag: str, world: World) -> tuple[int, int]:
    """Return a number and the file of a machine's first process, for all processes there.

    Args:
        descriptor: of the first one's file; the others' does not count.
        number: likewise.
        flag: that asks for the file, for an error.
        world: the processes that call this together.

    Raises:
        DatasetError: the file cannot be opened.
    """
    is_first = world.process.local_rank == 0
    where = tell_file(descriptor) if is_first else np.zeros(4, np.int64)
    mine = np.concatenate([np.array([is_first, number], np.int64), where])
    told = np.concatenate(world.all_gather(mine[None]))
    if not is_first:
        # The ranks of a machine follow each other.
        first_of_machine = np.flatnonzero(told[: world.process.rank, 0])[-1]
        number = int(told[first_of_machine, 1])
        descriptor = _open_for_all(told[first_of_machine, 2:], flag)
    world.all_gather(np.zeros(0, np.int64))  # the first one keeps its file until all have opened it
    return number, descriptor


def _open_for_all(told: np.ndarray, flag: str) -> int:
    try:
        return open_told_file(told)
    except OSError as error:
        raise DatasetError(
            f"{flag}: the images that process {told[0]} keeps for this machine cannot be "
            f"shared: {error}; run all processes of a machine as one user, or leave "
            f"{flag.split()[0]} out"
        ) from error
