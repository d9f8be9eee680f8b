"""--bind-numa: bind a process to the NUMA node of its GPU, or to its part of the nodes.

Linux allocates memory on the node of the requesting core, so memory follows. Child processes
inherit the cores, so bind before the loader starts its workers and a framework sizes its thread
pools. The node of a GPU is therefore found without a framework: the CUDA driver numbers GPUs as
both frameworks do, and sysfs has the node of a PCI address.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from duet.backend.checks import CPU
from duet.backend.processes import local_world_size, this_process
from duet.utils.processes.cores import load_driver
from duet.utils.text import count

SYSTEM = Path("/sys")
PCI_ADDRESS_BYTES = 32
Cores = frozenset[int]


def bind_numa(device: str, system: Path = SYSTEM) -> str:
    """Bind this process and its threads; return a log line.

    A rank with a GPU is bound to the GPU's node. CPU ranks are spread over the nodes in order, with
    several nodes per rank if there are more nodes than ranks. Ranks on the same node share its
    cores. If binding is impossible, nothing changes.

    Args:
        device: --device: "cpu", "1", "cuda:1", one per local rank ("0,1"), or "" for the local
            rank's GPU if there are GPUs.
        system: mount point of sysfs.
    """
    rank = f"rank {this_process().rank}: " if this_process().world_size > 1 else ""
    try:
        return rank + _bind(device, system)
    except (OSError, ValueError) as error:
        return f"{rank}--bind-numa has no effect: {error}"


def _bind(device: str, system: Path) -> str:
    nodes = _read_nodes(system)
    if len(nodes) < 2:
        return f"{'one NUMA node' if nodes else 'no NUMA nodes here'}: nothing to bind"
    allowed = os.sched_getaffinity(0)
    usable = {node: cores & allowed for node, cores in nodes.items() if cores & allowed}
    index = _gpu_index(device, this_process().local_rank)
    chosen = _nodes_of_rank(sorted(usable)) if index is None else [_gpu_node(index, system)]
    if not usable.keys() >= set(chosen):
        raise ValueError(f"this process is not allowed to use the cores of node {chosen[0]}")
    cores = Cores().union(*(usable[node] for node in chosen))
    os.sched_setaffinity(0, cores)
    for thread in os.listdir("/proc/self/task"):  # started by NumPy and the driver
        with suppress(ProcessLookupError):  # may have ended
            os.sched_setaffinity(int(thread), cores)
    several = "s" if len(chosen) > 1 else ""
    return f"NUMA node{several} {', '.join(map(str, chosen))}, {count(len(cores), 'core')}"


def _gpu_index(device: str, local_rank: int) -> int | None:
    """Return the index of this rank's GPU; None for the CPU."""
    if device == CPU or (device == "" and load_driver() is None):
        return None
    if device == "":
        return local_rank
    devices = device.split(",")
    own = devices[0] if len(devices) == 1 else "".join(devices[local_rank : local_rank + 1])
    number = own.removeprefix("cuda:")
    if not number.isdecimal():
        raise ValueError(f"--device {device} names no GPU for local rank {local_rank}")
    return int(number)


def _nodes_of_rank(nodes: Sequence[int]) -> Sequence[int]:
    """Return this CPU rank's nodes: at least one, shared if there are more ranks."""
    place, ranks = this_process().local_rank, local_world_size()
    first = place * len(nodes) // ranks
    return nodes[first : max(first + 1, (place + 1) * len(nodes) // ranks)]


def _gpu_node(index: int, system: Path) -> int:
    """Return the node of "cuda:<index>"."""
    driver = load_driver()
    if driver is None:
        raise ValueError("the CUDA driver, needed to find a GPU's node, cannot be loaded")
    device, text = ctypes.c_int(), ctypes.create_string_buffer(PCI_ADDRESS_BYTES)
    if driver.cuDeviceGet(ctypes.byref(device), index) != 0 or (
        driver.cuDeviceGetPCIBusId(text, PCI_ADDRESS_BYTES, device) != 0
    ):
        raise ValueError(f"this process sees no GPU {index}")
    domain, _, rest = text.value.decode("ascii").lower().partition(":")
    name = f"{int(domain, 16):04x}:{rest}"  # some drivers write the domain with eight digits
    path = system / "bus" / "pci" / "devices" / name / "numa_node"
    node = int(path.read_text(encoding="ascii"))
    if node < 0:
        raise ValueError(f"the system does not know the node of GPU {index}: {path}")
    return node


def _read_nodes(system: Path) -> Mapping[int, Cores]:
    """Return the cores of each node that has any; {} if the system reports none."""
    files = (system / "devices" / "system" / "node").glob("node*/cpulist")
    cores = {int(file.parent.name.removeprefix("node")): _read_cores(file) for file in files}
    return {number: own for number, own in cores.items() if own}


def _read_cores(path: Path) -> Cores:
    """Read the numbers of a kernel list such as `0-3,8`."""
    text = path.read_text(encoding="ascii").strip()
    numbers: set[int] = set()
    for part in text.split(",") if text else []:
        first, dash, last = part.partition("-")
        numbers.update(range(int(first), int(last if dash else first) + 1))
    return Cores(numbers)
