"""Two "machines" on this one: network namespaces joined by a cable that a test can cut.

    python3 -m tests.distributed.network_namespaces

says whether this machine can do that: exit code 0, or 3 with the reason. Each namespace has its own
loopback, addresses and ports, so a program in one reaches the other by the cable alone.

Standard library only: `.ci/run` asks before anything is installed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from typing import NamedTuple

CANNOT = 3  # exit code
SECONDS = 30  # for any command of ip, which takes milliseconds
NUMBERS = count()


class Machine(NamedTuple):
    """One network namespace."""

    namespace: str
    interface: str  # its end of the cable
    address: str

    def command(self, *words: object) -> list[str]:
        """Return the command that runs `words` on this machine."""
        return ["ip", "netns", "exec", self.namespace, *map(str, words)]

    def set_link(self, state: str) -> None:
        """Plug the cable in ("up") or pull it out ("down")."""
        _ip("-n", self.namespace, "link", "set", self.interface, state)

    def processes(self) -> list[int]:
        """Return the ids of the processes on this machine."""
        return [int(number) for number in _ip("netns", "pids", self.namespace).split()]


def reason_against() -> str:
    """Return why this machine cannot do it; empty if it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "network namespaces need ip (Debian: apt install iproute2)"
    try:
        with two_machines():
            return ""
    except (OSError, subprocess.SubprocessError) as error:
        return f"network namespaces cannot be made: {error}"


@contextlib.contextmanager
def two_machines() -> Iterator[tuple[Machine, Machine]]:
    """Make machines 10.77.0.1 and 10.77.0.2; kill what still runs on them at the end.

    `machine.set_link("down")` of either cuts the cable. Packets are lost without notice, as with a
    switch that fails; connections stay open until a timeout.

    Raises:
        OSError: ip failed; the text is its own.
    """
    name = f"duet{os.getpid()}x{next(NUMBERS)}"
    one = Machine(f"{name}a", "cable", "10.77.0.1")
    two = Machine(f"{name}b", "cable", "10.77.0.2")
    try:
        for machine in (one, two):
            _ip("netns", "add", machine.namespace)
        near, far = ["netns", one.namespace], ["netns", two.namespace]
        _ip("link", "add", "cable", *near, "type", "veth", "peer", "name", "cable", *far)
        for machine in (one, two):
            inside = ("-n", machine.namespace)
            _ip(*inside, "addr", "add", f"{machine.address}/24", "dev", machine.interface)
            _ip(*inside, "link", "set", "lo", "up")
            machine.set_link("up")
        yield one, two
    finally:
        for machine in (one, two):
            _remove(machine)


def _remove(machine: Machine) -> None:
    """End what runs there, then the namespace, and with it its end of the cable."""
    if machine.namespace not in _ip("netns", "list").split():
        return
    for process in machine.processes():
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    _ip("netns", "delete", machine.namespace)


def _ip(*words: str) -> str:
    """Return what `ip` prints; OSError with its message if it fails."""
    command = ["ip", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    if done.returncode != 0:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def main() -> None:
    reason = reason_against()
    if reason:
        print(f"the tests with two machines are left out: {reason}")
        sys.exit(CANNOT)


if __name__ == "__main__":
    main()
