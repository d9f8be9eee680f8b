"""Files without a name, shared by processes: none outlives the processes that hold it."""

from __future__ import annotations

import mmap
import os
from functools import cached_property
from multiprocessing import reduction
from typing import Any

import numpy as np

from utils.errors import DatasetError
from utils.processes.world import World


class NamelessFile:
    """An open file without a name, in memory unless another descriptor is given.

    Pickled for a spawned process, it is the same file there. The limit of /dev/shm, 64 MB in a
    default container, does not apply.
    """

    def __init__(self, num_bytes: int = 0, descriptor: int | None = None):
        """Take over an open descriptor, or make a file of some bytes in memory."""
        self.descriptor = os.memfd_create("duet") if descriptor is None else descriptor
        if descriptor is None:
            os.ftruncate(self.descriptor, max(num_bytes, 1))  # mapping 0 bytes fails

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (reduction.DupFd(self.descriptor),)

    def __del__(self) -> None:
        if "descriptor" in vars(self):
            os.close(self.descriptor)

    @cached_property
    def memory(self) -> mmap.mmap:
        """The bytes of the file, shared with every process that maps them."""
        return mmap.mmap(self.descriptor, 0)

    def array(self, dtype: Any, shape: tuple[int, ...], offset: int) -> np.ndarray:
        """Return an array that lies in the file, `offset` bytes from its start; writable."""
        return np.ndarray(shape, dtype, self.memory, offset)


def _reopen(duplicate: Any) -> NamelessFile:
    return NamelessFile(descriptor=duplicate.detach())


def share_file(
    file: NamelessFile | None, number: int, flag: str, world: World
) -> tuple[int, NamelessFile]:
    """Return a number and the file of a machine's first process, for all processes there.

    Args:
        file: of the first one; None in the others.
        number: of the first one; the others' does not count.
        flag: that asks for the file, for an error.
        world: the processes that call this together.

    Raises:
        DatasetError: the file cannot be opened.
    """
    mine = [file is not None, number, os.getpid(), 0 if file is None else file.descriptor]
    all_of_them = np.concatenate(world.all_gather(np.array([mine], np.int64)))
    if file is None:
        # The ranks of a machine follow each other.
        first_of_machine = np.flatnonzero(all_of_them[: world.process.rank, 0])[-1]
        _, number, process_id, descriptor = all_of_them[first_of_machine].tolist()
        try:
            opened = os.open(f"/proc/{process_id}/fd/{descriptor}", os.O_RDWR)
        except OSError as error:
            raise DatasetError(
                f"{flag}: the images that process {process_id} keeps for this machine cannot be "
                f"shared: {error}; run all processes of a machine as one user, or leave "
                f"{flag.split()[0]} out"
            ) from error
        file = NamelessFile(descriptor=opened)
    world.all_gather(np.zeros(0, np.int64))  # the first one keeps its file until all have opened it
    return number, file
