"""End the whole job when one of its processes dies, is lost or stands still, and name it.

`start` connects every rank to rank 0. Once a second, a thread of each rank reports what the rank is
doing. When a connection ends, its rank has ended. Long work names its phase and counts its steps:

    with watchdog.phase("validation"):
        for batch in loader:
            watchdog.progress()

Both cost about a microsecond. Nothing is sent where `start` was not called.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from backend.processes import this_process
from utils.processes.activity import Activity
from utils.processes.process_family import delay_abort
from utils.processes.watchdog_hub import Hub
from utils.processes.watchdog_link import connect, listening_host, rank_name
from utils.processes.watchdog_member import Member

AllGather = Callable[[np.ndarray], list[np.ndarray]]

_activity = Activity()
_watcher: Hub | Member | None = None

progress = _activity.progress


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Name what this process does in the block; afterwards the phase around it goes on."""
    with _activity.phase(name):
        _tell()
        yield
    _tell()


def _tell() -> None:
    """Report at once: a second later this rank may be gone."""
    if _watcher is not None:
        _watcher.tell()


def start(timeout_s: float, all_gather: AllGather) -> None:
    """Begin to watch the job of several processes.

    Args:
        timeout_s: a rank without progress for so long ends the job.
        all_gather: of `backend.dist`, which must have been started.

    Raises:
        RuntimeError: a rank did not connect in time.
    """
    global _watcher
    assert _watcher is None
    delay_abort()
    local_ranks = all_gather(np.array([this_process().local_rank], np.int64))
    machines = sum(int(local_rank[0]) == 0 for local_rank in local_ranks)
    start_one = _start_hub if this_process().is_main else _start_member
    _watcher = start_one(timeout_s, machines, all_gather)


def leave(code: int) -> None:
    """Report that this process ends with an exit code.

    After success it returns when all ranks have come here, so no rank loses its connections early.
    Otherwise the other ranks end too.
    """
    global _watcher
    if _watcher is not None:
        _watcher.leave(code)
        _watcher = None


def _start_hub(timeout_s: float, machines: int, all_gather: AllGather) -> Hub:
    hub = Hub(listening_host(machines), _activity, timeout_s)
    all_gather(np.frombuffer(json.dumps(hub.invitation).encode(), np.uint8))
    hub.wait_for_members()
    return hub


def _start_member(timeout_s: float, machines: int, all_gather: AllGather) -> Member:
    invitation = json.loads(all_gather(np.zeros(0, np.uint8))[0].tobytes())
    rank, host = this_process().rank, socket.gethostname()
    link = connect(machines, invitation["port"], invitation["token"], rank=rank, host=host)
    return Member(link, _activity, timeout_s, rank_name(0, invitation["host"]))
