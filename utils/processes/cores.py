"""The cores of a process: choose the number of loader workers, and bind a rank to a NUMA node.

A process far from its GPU copies batches across sockets. Children inherit the binding.
"""

import ctypes
import logging
import os
from pathlib import Path
from typing import Any

from duet.backend.checks import CPU
from duet.backend.cores import cores_of_rank
from duet.backend.processes import local_world_size, this_process
from duet.backend.system import DEVICES, NODES, NVIDIA_DRIVER, bind_to, can_bind, cores_of
from duet.utils.errors import UserError
from duet.utils.processes.start import is_called

# Beside a GPU: for the process that queues its work and for all others.
CORES_LEFT = 2
# A mosaic of photographs takes the loader 8 to 10 ms of a core. A YOLOv5n step takes 7 ms per image
# at 96 px on one thread, 20 ms at 320 px on four: two workers keep up with four cores.
CORES_OF_A_WORKER, FEWEST_WORKERS, MOST_WORKERS = 4, 2, 8

log = logging.getLogger("launch")


def loader_workers(asked: int | None, device: str) -> int:
    """Return the number of loader workers, at most one per core.

    Args:
        asked: the user's choice; None to choose by cores and device.
        device: --device; "" is a GPU if available.
    """
    cores = cores_of_rank()
    if asked is not None:
        return min(asked, cores)
    wanted = cores - CORES_LEFT
    if device == CPU or (not device and load_driver() is None):
        wanted = min(cores // CORES_OF_A_WORKER, MOST_WORKERS)
    return min(max(wanted, FEWEST_WORKERS), cores)


def load_driver() -> Any:
    """Load and initialize the CUDA driver library; None without a driver or GPU."""
    try:
        driver = ctypes.CDLL(NVIDIA_DRIVER)
    except OSError:
        return None
    return driver if driver.cuInit(0) == 0 else None


def bind_to_node(device: str) -> None:
    """Bind this process before a framework starts threads; UserError where it cannot be bound."""
    if not can_bind() or is_called():
        where = "on this system, which binds no processes" if not can_bind() else "from Python"
        raise UserError(f"--bind-numa does not work {where}; leave it out")
    own, rank = cores_of(), this_process().local_rank
    if own < cores_of(os.getppid()):  # as torchrun's own binding does
        return log.info("--bind-numa: the launcher has bound the process already")
    node = node_of_gpu(gpu_address(device, rank)) if device != CPU else None
    cores = cores_to_use(node, rank, local_world_size(), own)
    bind_to(cores)
    log.info("--bind-numa: local rank %d on %d of %d cores", rank, len(cores), len(own))


def cores_to_use(
    node: int | None, rank: int, ranks: int, own: set[int], nodes: Path = NODES
) -> set[int]:
    """Return the cores of a node among a process's own; without a node, of the rank's part."""
    lists = {int(x.parent.name[4:]): x.read_text("ascii") for x in nodes.glob("node*/cpulist")}
    usable = {number: own & cores_in(lists[number]) for number in sorted(lists)}
    if node is not None:
        return usable.get(node) or own
    filled = [cores for cores in usable.values() if cores] or [own]
    first, end = (place * len(filled) // ranks for place in (rank, rank + 1))
    return set().union(*filled[first : max(end, first + 1)])


def cores_in(text: str) -> set[int]:
    """Parse a list of cores such as "0-3,8"; "" for a node without cores."""
    parts = (part.partition("-") for part in text.strip().split(",") if part)
    return {core for first, _, last in parts for core in range(int(first), int(last or first) + 1)}


def gpu_address(device: str, rank: int) -> str:
    """Return the PCI address of a rank's GPU; "" without a driver."""
    driver, address, names = load_driver(), ctypes.create_string_buffer(32), device.split(",")
    index = names[rank % len(names)].removeprefix("cuda").removeprefix(":") if device else rank
    found = driver is not None and driver.cuDeviceGetPCIBusId(address, 32, int(index or 0)) == 0
    return address.value.decode("ascii").lower() if found else ""


def node_of_gpu(address: str, devices: Path = DEVICES) -> int | None:
    """Return the node of a GPU; None if the system does not report it."""
    path = devices / address / "numa_node"
    node = int(path.read_text("ascii")) if address and path.exists() else -1
    return node if node >= 0 else None
