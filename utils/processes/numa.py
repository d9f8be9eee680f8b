"""Bind a rank to the cores of its device's NUMA node (--bind-numa).

Linux takes new memory from the node of the core that asks for it, so the memory follows. What the
process starts later inherits the cores: call `bind_numa` before the loader starts its workers, and
before a framework sizes its thread pools. So the node of a GPU must be known without a framework:
CUDA's driver numbers the GPUs as both frameworks do, and sysfs has the node of a PCI address.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from backend.processes import local_world_size, this_process
from utils.processes.cores import load_driver

SYSTEM = Path("/sys")
PCI_ADDRESS_BYTES = 32
Cores = frozenset[int]


class UnknownNodeError(Exception):
    """The node of a device is not known; the text says why."""


def bind_numa(device: str, system: Path = SYSTEM) -> str:
    """Bind this process and its threads; return the line for the log.

    The rank of a GPU gets the GPU's node. Ranks on the CPU are spread over the nodes, in order; if
    there are more nodes than ranks, a rank gets several. Ranks of one node share its cores. What
    cannot be bound stays as it was, and so does what a launcher has bound to one node.

    Args:
        device: --device as given: "cpu", "1", "cuda:1", one of each local rank ("0,1"), or ""
            for the GPU of the local rank if there are GPUs.
        system: the folder in which sysfs is mounted.
    """
    rank = f"rank {this_process().rank}: " if this_process().world_size > 1 else ""
    try:
        return rank + _bind(device, system)
    except (UnknownNodeError, OSError, ValueError) as error:
        return f"{rank}--bind-numa binds nothing: {error}"


def _bind(device: str, system: Path) -> str:
    nodes = read_nodes(system)
    if len(nodes) < 2:
        return f"{'one NUMA node' if nodes else 'no NUMA nodes here'}: nothing to bind"
    allowed = os.sched_getaffinity(0)
    usable = {node: cores & allowed for node, cores in nodes.items() if cores & allowed}
    if len(usable) == 1:
        name = f"NUMA node {next(iter(usable))}, cores {format_numbers(allowed)}"
        return f"{name}: bound before the start, left as it is"
    index = gpu_index(device, this_process().local_rank)
    chosen = nodes_of_rank(sorted(usable)) if index is None else [gpu_node(index, system)]
    if not usable.keys() >= set(chosen):
        raise UnknownNodeError(f"this process may use no core of node {chosen[0]}")
    cores = Cores().union(*(usable[node] for node in chosen))
    _bind_threads(cores)
    several = "s" if len(chosen) > 1 else ""
    return f"NUMA node{several} {format_numbers(chosen)}, cores {format_numbers(cores)}"


def gpu_index(device: str, local_rank: int) -> int | None:
    """Return the number of this rank's GPU; None for the CPU.

    Raises:
        UnknownNodeError: --device names no GPU for this rank.
    """
    if device == "cpu" or (device == "" and load_driver() is None):
        return None
    if device == "":
        return local_rank
    devices = device.split(",")
    own = devices[0] if len(devices) == 1 else "".join(devices[local_rank : local_rank + 1])
    number = own.removeprefix("cuda:")
    if not number.isdecimal():
        raise UnknownNodeError(f"--device {device} names no GPU for local rank {local_rank}")
    return int(number)


def nodes_of_rank(nodes: Sequence[int]) -> Sequence[int]:
    """Return the nodes of this rank on the CPU: at least one, shared if there are more ranks."""
    place, ranks = this_process().local_rank, local_world_size()
    first = place * len(nodes) // ranks
    return nodes[first : max(first + 1, (place + 1) * len(nodes) // ranks)]


def gpu_node(index: int, system: Path) -> int:
    """Return the number of the node of "cuda:<index>".

    Raises:
        UnknownNodeError: no such GPU, no driver, or the system does not say.
    """
    driver = load_driver()
    if driver is None:
        raise UnknownNodeError("CUDA's driver, which tells the node of a GPU, cannot be loaded")
    path = system / "bus" / "pci" / "devices" / pci_address(driver, index) / "numa_node"
    try:
        node = int(path.read_text(encoding="ascii"))
    except (OSError, ValueError) as error:
        raise UnknownNodeError(f"the node of GPU {index} cannot be read: {error}") from error
    if node < 0:
        raise UnknownNodeError(f"the system does not say on which node GPU {index} is: {path}")
    return node


def pci_address(driver: Any, index: int) -> str:
    """Return a GPU's name in /sys/bus/pci/devices, such as 0000:3b:00.0."""
    device, text = ctypes.c_int(), ctypes.create_string_buffer(PCI_ADDRESS_BYTES)
    if driver.cuDeviceGet(ctypes.byref(device), index) != 0:
        raise UnknownNodeError(f"this process sees no GPU {index}")
    if driver.cuDeviceGetPCIBusId(text, PCI_ADDRESS_BYTES, device) != 0:
        raise UnknownNodeError(f"the driver does not say where GPU {index} is")
    domain, _, rest = text.value.decode("ascii").lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}"  # some drivers write the domain with eight digits


def read_nodes(system: Path = SYSTEM) -> Mapping[int, Cores]:
    """Return the cores of each node that is online and has some; {} if the system names none.

    Raises:
        ValueError: a file that is no list of numbers.
        OSError: a file that cannot be read.
    """
    folder = system / "devices" / "system" / "node"
    if not (folder / "online").exists():
        return {}
    online = read_numbers(folder / "online")
    cores = {number: read_numbers(folder / f"node{number}" / "cpulist") for number in online}
    return {number: own for number, own in cores.items() if own}


def read_numbers(path: Path) -> Cores:
    """Read the numbers of a kernel list such as `0-3,8`; ValueError names a file without one."""
    text = path.read_text(encoding="ascii", errors="replace").strip()
    numbers: set[int] = set()
    try:
        for part in text.split(",") if text else []:
            first, dash, last = part.partition("-")
            numbers.update(range(int(first), int(last if dash else first) + 1))
    except ValueError:
        raise ValueError(f"{path} holds {text!r}, which is no list such as 0-3,8") from None
    return Cores(numbers)


def format_numbers(numbers: Iterable[int]) -> str:
    """Write numbers as the kernel does, such as `0-3,8`."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def _bind_threads(cores: Cores) -> None:
    """Bind all threads, also those that NumPy and CUDA's driver have already started."""
    os.sched_setaffinity(0, cores)
    for thread in os.listdir("/proc/self/task"):
        with suppress(ProcessLookupError):  # the thread has ended meanwhile
            os.sched_setaffinity(int(thread), cores)
