"""How each framework's ranks are started: by its own launcher, or by ours on one machine.

Imports no framework.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple


class Launcher(NamedTuple):
    """What is known of a framework's ranks before it is imported."""

    command: str  # its launcher, as users write it
    variables: frozenset[str]  # no other launcher sets all of them for its processes
    # For ranks of one machine: keeps what they open on the loopback; {port}: a free port.
    local: Mapping[str, str]
    needs_network: bool  # it listens on all interfaces, whatever is asked


# By the name of its backend. A backend for inference only has none.
LAUNCHERS: dict[str, Launcher] = {
    "torch": Launcher(
        command="torchrun",
        variables=frozenset({"TORCHELASTIC_RUN_ID"}),
        local={"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"},
        needs_network=False,
    ),
    "oneflow": Launcher(
        command="python -m oneflow.distributed.launch",
        variables=frozenset({"RANK", "WORLD_SIZE", "MASTER_ADDR", "GLOG_log_dir"}),
        local={"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "{port}", "NCCL_SOCKET_IFNAME": "lo"},
        needs_network=True,
    ),
}


def backend_of_launcher() -> str | None:
    """Return the backend whose launcher set this process's environment, None without one."""
    for name, launcher in LAUNCHERS.items():
        if launcher.variables <= os.environ.keys():
            return name
    return None
