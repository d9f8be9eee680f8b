"""Which sockets of some processes other machines could reach, as the kernel lists them."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

LISTENING = "0A"  # TCP_LISTEN in /proc/net/tcp
LOOPBACK = {"lo"}
POLL_SECONDS = 0.01


class Listener(NamedTuple):
    """A socket that takes connections."""

    address: str
    port: int
    interfaces: frozenset[str]  # of its network namespace

    @property
    def is_exposed(self) -> bool:
        """Whether another machine could reach it, if no firewall hinders."""
        if self.interfaces == LOOPBACK:
            return False
        address = ipaddress.ip_address(self.address)
        return not (getattr(address, "ipv4_mapped", None) or address).is_loopback


def listeners(process: int) -> set[Listener]:
    """Return the listening TCP sockets of a process; none if it has ended."""
    folder = Path("/proc", str(process))
    try:
        mine = set(_open_files(folder / "fd"))
        lines = (folder / "net" / "dev").read_text().splitlines()[2:]
        interfaces = frozenset(line.partition(":")[0].strip() for line in lines)
        tables = [(folder / "net" / name).read_text() for name in ("tcp", "tcp6")]
    except OSError:
        return set()
    rows = [line.split() for table in tables for line in table.splitlines()[1:]]
    return {
        Listener(*_place(row[1]), interfaces)
        for row in rows
        if row[3] == LISTENING and f"socket:[{row[9]}]" in mine
    }


def _open_files(folder: Path) -> Iterator[str]:
    for file in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):  # it was closed meanwhile
            yield os.readlink(file)


def _place(text: str) -> tuple[str, int]:
    """Return address and port of `0100007F:1F90`: words of four bytes in the host's order."""
    address, _, port = text.partition(":")
    raw = bytes.fromhex(address)
    words = b"".join(raw[i : i + 4][::-1] for i in range(0, len(raw), 4))
    return str(ipaddress.ip_address(words)), int(port, 16)


def watch(processes: Callable[[], Iterable[int]], is_over: Callable[[], bool]) -> set[Listener]:
    """Return all listening sockets that the processes had until it was over."""
    seen: set[Listener] = set()
    while not is_over():
        for process in processes():
            seen |= listeners(process)
        time.sleep(POLL_SECONDS)
    return seen
