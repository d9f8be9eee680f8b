"""How each framework's ranks are started, and which of them this process is.

All launchers set the same variables: RANK, LOCAL_RANK and WORLD_SIZE. Imports no framework.
"""

import os
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, TypeVar

# Private folder through which the ranks of one machine connect instead of MASTER_ADDR; set by
# `utils/processes/launch.py`.
MEETING_FOLDER = "DUET_MEETING_FOLDER"


class _Sliceable(Protocol):
    def __len__(self) -> int: ...
    def __getitem__(self, key: slice, /) -> Any: ...


_Items = TypeVar("_Items", bound=_Sliceable)


class Process(NamedTuple):
    """One of the processes of a job; the only one by default."""

    rank: int = 0  # across all machines
    local_rank: int = 0  # on this machine
    world_size: int = 1

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    def shard(self, items: _Items) -> _Items:
        """Return this process's contiguous shard of a sequence; it may be empty.

        The shards of all ranks in order make up the sequence; lengths differ by at most one.
        """
        return items[self._start(len(items), self.rank) : self._start(len(items), self.rank + 1)]

    def _start(self, count: int, rank: int) -> int:
        return -(-count * rank // self.world_size)  # rounded up: rank 0 is the last to run empty


def this_process() -> Process:
    """Return this process as described by its launcher; without one it is the only process."""
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
    if not all(os.environ.get(name, "").isdecimal() for name in names):
        return Process()
    return Process(*(int(os.environ[name]) for name in names))


def local_world_size() -> int:
    """Return the number of this job's processes on this machine.

    OneFlow's launcher does not set it; the world size is returned then, correct for one machine.
    """
    size = os.environ.get("LOCAL_WORLD_SIZE", "")
    return int(size) if size.isdecimal() and int(size) else this_process().world_size


class Launcher(NamedTuple):
    """Facts about a framework's ranks, known before it is imported."""

    command: str  # command line of its launcher
    variables: frozenset[str]  # set together by this launcher only
    # Keeps the sockets of ranks on one machine on the {loopback} interface; {port}: a free port.
    local: Mapping[str, str]
    needs_network: bool  # listens on all interfaces regardless of settings


# Keys are backend names. Inference-only backends have no launcher.
LAUNCHERS: dict[str, Launcher] = {
    "torch": Launcher(
        command="torchrun",
        variables=frozenset({"TORCHELASTIC_RUN_ID"}),
        local={"GLOO_SOCKET_IFNAME": "{loopback}", "NCCL_SOCKET_IFNAME": "{loopback}"},
        needs_network=False,
    ),
    "oneflow": Launcher(
        command="python -m oneflow.distributed.launch",
        variables=frozenset({"RANK", "WORLD_SIZE", "MASTER_ADDR", "GLOG_log_dir"}),
        local={
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": "{port}",
            "NCCL_SOCKET_IFNAME": "{loopback}",
        },
        needs_network=True,
    ),
}


def backend_of_launcher() -> str | None:
    """Return the backend whose launcher set this process's environment, None if none did."""
    for name, launcher in LAUNCHERS.items():
        if launcher.variables <= os.environ.keys():
            return name
    return None
