"""Which of a job's processes this one is, as its launcher says.

All launchers set the same variables: RANK, LOCAL_RANK and WORLD_SIZE. Imports no framework.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple, Protocol, TypeVar

# Names a private folder in which the ranks of one machine may meet, instead of at MASTER_ADDR. Our
# own `utils/processes/local_ranks.py` sets it.
MEETING_FOLDER = "DUET_MEETING_FOLDER"


class _Sliceable(Protocol):
    def __len__(self) -> int: ...
    def __getitem__(self, key: slice, /) -> Any: ...


_Items = TypeVar("_Items", bound=_Sliceable)


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
