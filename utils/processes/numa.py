"""--bind-numa: bind a process to the NUMA node of its GPU, or to its share of the nodes.

Linux takes new memory from the node of the core that asks for it, so the memory follows. Processes
that are started later inherit the cores: bind before the loader starts its workers, and before a
framework sizes its thread pools. So the node of a GPU must be known without a framework: CUDA's
driver numbers the GPUs as both frameworks do, and sysfs has the node of a PCI address.
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
    """Bind this process and its threads; return the line for the log.

    The rank of a GPU gets the GPU's node. Ranks on the CPU are spread over the nodes, in order; if
    there are more nodes than ranks, a rank gets several. Ranks of one node share its cores. What
    cannot be bound stays as it was.

    Args:
        device: --device as given: "cpu", "1", "cuda:1", one of each local rank ("0,1"), or ""
            for the GPU of the local rank if there are GPUs.
        system: the folder in which sysfs is mounted.
    """
    rank = f"rank {this_process().rank}: " if this_process().world_size > 1 else ""
    try:
        return rank + _bind(device, system)
    except (OSError, ValueError) as error:
        return f"{rank}--bind-numa binds nothing: {error}"


def _bind(device: str, system: Path) -> str:
    nodes = _read_nodes(system)
    if len(nodes) < 2:
        return f"{'one NUMA node' if nodes else 'no NUMA nodes here'}: nothing to bind"
    allowed = os.sched_getaffinity(0)
    usable = {node: cores & allowed for node, cores in nodes.items() if cores & allowed}
    index = _gpu_index(device, this_process().local_rank)
    chosen = _nodes_of_rank(sorted(usable)) if index is None else [_gpu_node(index, system)]
    if not usable.keys() >= set(chosen):
        raise ValueError(f"this process may use no core of node {chosen[0]}")
    cores = Cores().union(*(usable[node] for node in chosen))
    os.sched_setaffinity(0, cores)
    for thread in os.listdir("/proc/self/task"):  # those that NumPy and the driver have started
        with suppress(ProcessLookupError):  # it has ended meanwhile
            os.sched_setaffinity(int(thread), cores)
    several = "s" if len(chosen) > 1 else ""
    return f"NUMA node{several} {', '.join(map(str, chosen))}, {count(len(cores), 'core')}"


def _gpu_index(device: str, local_rank: int) -> int | None:
    """Return the number of this rank's GPU; None for the CPU."""
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
    """Return the nodes of this rank on the CPU: at least one, shared if there are more ranks."""
    place, ranks = this_process().local_rank, local_world_size()
    first = place * len(nodes) // ranks
    return nodes[first : max(first + 1, (place + 1) * len(nodes) // ranks)]


def _gpu_node(index: int, system: Path) -> int:
    """Return the number of the node of "cuda:<index>"."""
    driver = load_driver()
    if driver is None:
        raise ValueError("CUDA's driver, which knows the node of a GPU, cannot be loaded")
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
    """Return the cores of each node that has some; {} if the system names none."""
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
