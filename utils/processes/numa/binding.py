"""Bind a rank to the cores and the memory of its device's NUMA node (--bind-numa).

Before: `topology` reads the nodes, `gpus` finds the node of a GPU. After: `memory`. Everything that
the process starts later inherits both.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from backend.processes import Process, local_world_size, this_process
from utils.processes.numa.gpus import UnknownNode, gpu_node, load_driver
from utils.processes.numa.memory import prefer_node
from utils.processes.numa.topology import SYSTEM, Node, format_numbers, read_nodes


def bind_numa(device: str, system: Path = SYSTEM) -> str:
    """Bind this process, its threads and what it starts later; return the line for the log.

    Call it at the start of main(): before the loader starts its workers, which inherit the
    binding, and before a framework sizes its thread pools by the usable cores.

    The rank of a GPU gets the GPU's node. Ranks on the CPU are spread over the nodes, in order; if
    there are more nodes than ranks, a rank gets several. Ranks of one node share its cores. What
    cannot be bound stays as it was, and the line says why.

    Args:
        device: --device as given: "cpu", "1", "cuda:1", one of each local rank ("0,1"), or ""
            for the GPU of the local rank if there are GPUs.
        system: the folder in which sysfs is mounted.
    """
    process = this_process()
    rank = f"rank {process.rank}: " if process.world_size > 1 else ""
    try:
        return rank + _bind(device, process, system)
    except (UnknownNode, OSError, ValueError) as error:
        return f"{rank}--bind-numa binds nothing: {error}"


def _bind(device: str, process: Process, system: Path) -> str:
    nodes = read_nodes(system)
    if len(nodes) < 2:
        return f"{'one NUMA node' if nodes else 'no NUMA nodes here'}: nothing to bind"
    index = gpu_index(device, process.local_rank)
    if index is None:
        usable = [node for node in nodes if node.cores & os.sched_getaffinity(0)]
        chosen = nodes_of_rank(usable, process.local_rank, local_world_size())
    else:
        chosen = [_node_of_gpu(index, nodes, system)]
    cores = frozenset[int]().union(*(_usable_cores(node) for node in chosen))
    before = " (bound before the start)" if cores == os.sched_getaffinity(0) else ""
    _bind_threads(cores)
    names = format_numbers(node.number for node in chosen)
    several = "s" if len(chosen) > 1 else ""
    return f"NUMA node{several} {names}, cores {format_numbers(cores)}{before}, {_memory(chosen)}"


def gpu_index(device: str, local_rank: int) -> int | None:
    """Return the number of this rank's GPU; None for the CPU.

    Raises:
        UnknownNode: --device names no GPU for this rank.
    """
    if device == "cpu" or (device == "" and load_driver() is None):
        return None
    if device == "":
        return local_rank
    devices = device.split(",")
    own = devices[0] if len(devices) == 1 else "".join(devices[local_rank : local_rank + 1])
    number = own.removeprefix("cuda:")
    if not number.isdecimal():
        raise UnknownNode(f"--device {device} names no GPU for local rank {local_rank}")
    return int(number)


def nodes_of_rank(nodes: Sequence[Node], local_rank: int, ranks: int) -> Sequence[Node]:
    """Return the nodes of a rank on the CPU: at least one, shared if there are more ranks."""
    first = local_rank * len(nodes) // ranks
    return nodes[first : max(first + 1, (local_rank + 1) * len(nodes) // ranks)]


def _node_of_gpu(index: int, nodes: Sequence[Node], system: Path) -> Node:
    number = gpu_node(index, system)
    for node in nodes:
        if node.number == number:
            return node
    raise UnknownNode(f"GPU {index} is on node {number}, which has no cores")


def _usable_cores(node: Node) -> frozenset[int]:
    """Return the cores of a node that this process may use; UnknownNode for none."""
    cores = node.cores & os.sched_getaffinity(0)
    if not cores:
        raise UnknownNode(f"this process may use no core of node {node.number}")
    return cores


def _bind_threads(cores: frozenset[int]) -> None:
    """Bind all threads, also those that NumPy and CUDA's driver have already started."""
    os.sched_setaffinity(0, cores)
    for thread in os.listdir("/proc/self/task"):
        with suppress(ProcessLookupError):  # the thread has ended meanwhile
            os.sched_setaffinity(int(thread), cores)


def _memory(nodes: Sequence[Node]) -> str:
    """Bind the memory if there is one node; return where it will come from."""
    if len(nodes) > 1:
        return "memory of the node that each core belongs to"
    if not nodes[0].has_memory:
        return "memory left unbound: the node has none"
    problem = prefer_node(nodes[0].number)
    return f"memory left unbound: {problem}" if problem else "memory of the same node first"
