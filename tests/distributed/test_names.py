"""A job of two ranks on one machine asks no name server, not even for the machine's own name."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.distributed.jobs import Job
from tests.distributed.machines import require_two_machines
from tests.distributed.network_namespaces import Machine, two_machines

SECONDS = 20  # a limit against hanging
# The host's name must be one that only a name server could know.
RENAMED = (
    "import os, socket, sys; socket.sethostname('host-without-entry');"
    "os.execvp(sys.argv[1], sys.argv[1:])"
)
ASKING = "import socket; print(socket.getfqdn())"


@contextmanager
def name_server(machine: Machine, file: Path) -> Iterator[list[str]]:
    """Answer for all name servers of this system, inside the machine.

    Yields the command, to be continued, that runs a program there under another host name.
    """
    lines = [line.split() for line in Path("/etc/resolv.conf").read_text().splitlines()]
    addresses = [line[1] for line in lines if line[:1] == ["nameserver"] and ":" not in line[1]]
    addresses = addresses or ["127.0.0.1"]  # glibc's own default
    for address in addresses:
        add = ["ip", "addr", "replace", f"{address}/32", "dev", "lo"]
        subprocess.run(machine.command(*add), check=True)
    server = subprocess.Popen(
        machine.command(sys.executable, "-m", "tests.distributed.name_server", file, *addresses)
    )
    try:
        deadline = time.monotonic() + SECONDS
        while not file.exists():
            assert server.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
        yield machine.command("unshare", "--uts", sys.executable, "-c", RENAMED)
    finally:
        server.kill()
        server.wait()


def questions(file: Path) -> list[str]:
    return file.read_text().splitlines()[1:]


def test_the_ranks_of_one_machine_ask_no_name_server(tmp_path):
    require_two_machines()
    file = tmp_path / "questions"
    with two_machines() as (machine, _), name_server(machine, file) as there:
        job = Job(tmp_path, raw=False, plan={}, within=there)
        code, text = job.end()
        assert code == 0, text
        assert questions(file) == []
        asking = subprocess.Popen([*there, sys.executable, "-c", ASKING])
        deadline = time.monotonic() + SECONDS
        while not questions(file):  # so one would have been seen
            assert time.monotonic() < deadline
            time.sleep(0.05)
        asking.kill()
        asking.wait()
