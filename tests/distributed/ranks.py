"""Starts a module of the tests as several ranks under a backend's own launcher."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

from duet.utils.project import PROJECT


def launcher(backend: str, ranks: int) -> list[str]:
    """Return the command line of a launcher up to the program's own arguments."""
    if backend == "torch":
        command = ["torch.distributed.run", "--standalone"]
    else:
        command = ["oneflow.distributed.launch", "--master_port", str(free_port())]
    return [sys.executable, "-m", *command, "--nproc_per_node", str(ranks)]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def run_ranks(
    ranks: int, *arguments: str, timeout: float = 300
) -> subprocess.CompletedProcess[str]:
    """Run a Python module of the tests as several ranks, with the backend of YOLO_BACKEND."""
    backend = os.environ["YOLO_BACKEND"]
    return subprocess.run(
        [*launcher(backend, ranks), *arguments],
        cwd=PROJECT,
        env=os.environ | {"PYTHONPATH": str(PROJECT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
