"""Which of a job's processes this one is, as its launcher says; imports no framework.

Both launchers set the same variables: RANK, LOCAL_RANK and WORLD_SIZE.
"""

from __future__ import annotations

import os
from typing import NamedTuple


class Processes(NamedTuple):
    """The place of this process among those that train together."""

    rank: int = 0  # among all
    local_rank: int = 0  # among those of this machine
    world_size: int = 1

    @property
    def is_main(self) -> bool:
        """Whether this process writes files and speaks for all."""
        return self.rank == 0


def processes() -> Processes:
    """Those of the launcher that started this process; one without a launcher."""
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
    if not all(os.environ.get(name, "").isdecimal() for name in names):
        return Processes()
    return Processes(*(int(os.environ[name]) for name in names))


def local_world_size() -> int:
    """How many of the processes run on this machine.

    OneFlow's launcher does not say: all of them then, which is right for one machine.
    """
    size = os.environ.get("LOCAL_WORLD_SIZE", "")
    return int(size) if size.isdecimal() and int(size) else processes().world_size
