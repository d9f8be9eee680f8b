"""Starts one job on two machines of `network_namespaces.py`, a launcher on each, as users would."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import pytest

import backend
from tests.distributed.network_namespaces import Machine, reason_against
from utils.files.project import PROJECT

LAUNCHERS = {"torch": "torch.distributed.run", "oneflow": "oneflow.distributed.launch"}
PORT = 29500  # each pair of machines has all ports to itself
POLL_SECONDS = 0.05


def require_two_machines() -> None:
    """Skip the test where namespaces cannot be made; fail it instead where REQUIRE_NETNS=1."""
    reason = reason_against()
    if reason and os.environ.get("REQUIRE_NETNS") == "1":
        pytest.fail(reason)
    if reason:
        pytest.skip(reason)


class Job:
    """A launcher on each machine; one rank a machine. Leaves no process behind."""

    def __init__(self, machines: Sequence[Machine], folder: Path, *arguments: object) -> None:
        """Start `arguments`, a script and its flags; output goes to files in the folder."""
        folder.mkdir(parents=True, exist_ok=True)
        self.logs = [folder / f"machine{number}.log" for number in range(len(machines))]
        self._processes: list[subprocess.Popen[bytes]] = []
        for number, machine in enumerate(machines):
            with self.logs[number].open("wb") as log:
                process = subprocess.Popen(
                    launch_command(machines, number, arguments),
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=PROJECT,
                    # gloo asks for the host's name, which no namespace can look up.
                    env={**os.environ, "GLOO_SOCKET_IFNAME": machine.interface},
                )
            self._processes.append(process)

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *exception: type[BaseException] | BaseException | TracebackType | None):
        for process in self._processes:
            process.kill()  # its ranks end with the namespace
            process.wait()

    def output(self) -> str:
        """Return what all machines printed so far."""
        return "\n".join(log.read_text(errors="replace") for log in self.logs)

    def exit_codes(self, seconds: float) -> list[int | None]:
        """Return the launchers' exit codes; None for one that still runs after so many seconds."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and None in [p.poll() for p in self._processes]:
            time.sleep(POLL_SECONDS)
        return [process.poll() for process in self._processes]

    def wait_for(self, path: Path, seconds: float) -> None:
        """Wait until a file is there; fail with all output if the job ends or stalls before."""
        deadline = time.monotonic() + seconds
        while not path.exists():
            ended = [process.poll() for process in self._processes]
            assert time.monotonic() < deadline and None in ended, f"{ended}\n{self.output()}"
            time.sleep(POLL_SECONDS)


def launch_command(
    machines: Sequence[Machine], number: int, arguments: Sequence[object]
) -> list[str]:
    """Return one machine's command line, as in docs/en/multi-node.md."""
    launcher = ["-m", LAUNCHERS[backend.use()], "--nnodes", len(machines), "--node_rank", number]
    launcher += ["--nproc_per_node", 1, "--master_addr", machines[0].address]
    launcher += ["--master_port", PORT]
    return machines[number].command(sys.executable, *launcher, *arguments)
