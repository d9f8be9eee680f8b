"""The NUMA nodes of this machine as Linux describes them in sysfs. After: `binding`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

SYSTEM = Path("/sys")


class Node(NamedTuple):
    """One NUMA node that has cores."""

    number: int
    cores: frozenset[int]  # all that are online, also those that this process may not use
    has_memory: bool


def read_nodes(system: Path = SYSTEM) -> list[Node]:
    """Return the nodes that are online and have cores, by number; [] if the system names none.

    Nodes with memory only, such as that of a GPU or of an expansion card, are left out: no process
    can run there.

    Args:
        system: the folder in which sysfs is mounted.

    Raises:
        ValueError: a file that is no list of numbers.
        OSError: a file that cannot be read.
    """
    folder = system / "devices" / "system" / "node"
    if not (folder / "online").exists():
        return []
    online = read_numbers(folder / "online")
    memory = folder / "has_memory"
    with_memory = read_numbers(memory) if memory.exists() else online
    cores = {number: read_numbers(folder / f"node{number}" / "cpulist") for number in online}
    return [Node(number, cores[number], number in with_memory) for number in sorted(online)
            if cores[number]]  # fmt: skip


def read_numbers(path: Path) -> frozenset[int]:
    """Read the numbers of a kernel list such as `0-3,8`; ValueError names a file without one."""
    text = path.read_text(encoding="ascii", errors="replace").strip()
    numbers: set[int] = set()
    for part in text.split(",") if text else []:
        first, dash, last = part.partition("-")
        last = last if dash else first
        if not (first.isdecimal() and last.isdecimal() and int(first) <= int(last)):
            raise ValueError(f"{path} holds {text!r}, which is no list such as 0-3,8")
        numbers.update(range(int(first), int(last) + 1))
    return frozenset(numbers)


def format_numbers(numbers: Iterable[int]) -> str:
    """Write numbers as the kernel does, such as `0-3,8`."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
