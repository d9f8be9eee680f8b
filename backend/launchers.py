"""How each framework's ranks are started: by its launcher, or by ours on one machine.

Imports no framework.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple


class Launcher(NamedTuple):
    """Facts about a framework's ranks, known before it is imported."""

    command: str  # command line of its launcher
    variables: frozenset[str]  # set together by this launcher only
    # Keeps the sockets of ranks on one machine on the loopback interface; {port}: a free port.
    local: Mapping[str, str]
    needs_network: bool  # listens on all interfaces regardless of settings


# Keys are backend names. Inference-only backends have no launcher.
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
    """Return the backend whose launcher set this process's environment, None if none did."""
    for name, launcher in LAUNCHERS.items():
        if launcher.variables <= os.environ.keys():
            return name
    return None
