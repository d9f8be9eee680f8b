"""Which of a job's processes this one is, as its launcher says, and which device is its own.

All launchers set the same variables: RANK, LOCAL_RANK and WORLD_SIZE. Imports no framework.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from backend.backend_error import BackendError
from backend.checks import CPU
from backend.words import count

# Names a private folder in which the ranks of one machine may meet, instead of at MASTER_ADDR. Our
# own `utils/processes/local_ranks.py` sets it.
MEETING_FOLDER = "DUET_MEETING_FOLDER"

_Items = TypeVar("_Items", np.ndarray, range, Sequence[Any])


class Process(NamedTuple):
    """One of the processes that do a job together; by default it is alone."""

    rank: int = 0  # among all
    local_rank: int = 0  # among those of this machine
    world_size: int = 1

    @property
    def is_main(self) -> bool:
        """Whether this process writes files and speaks for all."""
        return self.rank == 0

    def shard(self, items: _Items) -> _Items:
        """Return this process's contiguous part of a sequence; it may be empty.

        The shards of all ranks, in order, make up the sequence. Their lengths differ by at most
        one.
        """
        return items[self._start(len(items), self.rank) : self._start(len(items), self.rank + 1)]

    def _start(self, count: int, rank: int) -> int:
        return -(-count * rank // self.world_size)  # rounded up: rank 0 is the last to be idle


def this_process() -> Process:
    """Return this process as its launcher describes it; without a launcher it is alone."""
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
    if not all(os.environ.get(name, "").isdecimal() for name in names):
        return Process()
    return Process(*(int(os.environ[name]) for name in names))


def local_world_size() -> int:
    """Return how many of the processes run on this machine.

    OneFlow's launcher does not say. The answer is then all of them, which is right for one machine.
    """
    size = os.environ.get("LOCAL_WORLD_SIZE", "")
    return int(size) if size.isdecimal() and int(size) else this_process().world_size


def own_device(name: str, usable: Sequence[str]) -> str:
    """Return this process's device, as `contract.Device.resolve` promises.

    Args:
        name: what the user wrote.
        usable: the devices that this process can use: GPUs, then the CPU.
    """
    gpus = [device for device in usable if device != CPU]
    if name == CPU or (name == "" and not gpus):
        return CPU
    wanted = _listed(name, usable) if name else gpus
    process = this_process()
    if process.world_size == 1:
        if name and len(wanted) > 1:
            raise BackendError(
                f"--device {name!r}: {count(len(wanted), 'device')}, but this is one process; name "
                "one. train.py starts a process for each"
            )
        return wanted[0]
    if process.local_rank >= len(wanted):
        raise BackendError(
            f"this machine has {process.local_rank + 1} or more processes, but --device {name!r} "
            f"gives {len(wanted)}: {', '.join(wanted)}; start as many processes as devices, or "
            "use --device cpu"
        )
    return wanted[process.local_rank]


def _listed(name: str, usable: Sequence[str]) -> list[str]:
    """Return the devices of a list such as "0,1"; BackendError for one that is not there."""
    wanted = [f"cuda:{part}" if part.isdecimal() else part for part in name.split(",")]
    if CPU in wanted or not set(wanted) <= set(usable):
        raise BackendError(f"--device {name!r} is not there; this process has: {', '.join(usable)}")
    return wanted
