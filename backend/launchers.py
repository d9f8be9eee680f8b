"""The program with which each framework starts several processes; imports no framework."""

from __future__ import annotations

import os
from typing import NamedTuple


class Launcher(NamedTuple):
    """What is needed to start a launcher, and to recognise its processes and reports."""

    command: str  # as its users write it
    module: str
    options: tuple[str, ...]  # for processes on one machine only; {port}: a free port
    binds_numa: bool  # knows --numa-binding
    variables: frozenset[str]  # no other launcher sets all of them for its processes
    # Its own report on a failed rank begins with a line that contains one of these.
    failure_report: tuple[str, ...]


# By the name of its backend. A backend for inference only has none.
LAUNCHERS: dict[str, Launcher] = {
    "torch": Launcher(
        command="torchrun",
        module="torch.distributed.run",
        options=("--standalone",),
        binds_numa=True,
        variables=frozenset({"TORCHELASTIC_RUN_ID"}),
        failure_report=("closing signal SIG", "failed (exitcode: "),
    ),
    "oneflow": Launcher(
        command="python -m oneflow.distributed.launch",
        module="oneflow.distributed.launch",
        options=("--master_port", "{port}"),
        binds_numa=False,
        variables=frozenset({"RANK", "WORLD_SIZE", "MASTER_ADDR", "GLOG_log_dir"}),
        failure_report=("Killing subprocess ",),
    ),
}


def backend_of_launcher() -> str | None:
    """Return the backend whose launcher set this process's environment, None without one."""
    for name, launcher in LAUNCHERS.items():
        if launcher.variables <= os.environ.keys():
            return name
    return None
