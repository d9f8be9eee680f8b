"""--bind-numa: which cores a process is bound to, and what is reported where none are."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

from duet.utils.processes import cores
from duet.utils.processes.numa import bind_numa

FOUR_NODES = {0: "0-1", 1: "2-3", 2: "4-5", 3: "6-7"}
RANK_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
# CUDA's numbers are not those of the bus; some drivers write the domain with eight digits.
ADDRESSES = (b"0000:AF:00.0", b"00000000:3B:00.0", b"0000:41:00.0", b"0000:42:00.0")


def write_nodes(system: Path, cpulists: dict[int, str]) -> None:
    """Write the node folders of sysfs."""
    folder = system / "devices" / "system" / "node"
    for number, cpulist in cpulists.items():
        (folder / f"node{number}").mkdir(parents=True)
        (folder / f"node{number}" / "cpulist").write_text(cpulist + "\n")


def write_gpus(system: Path, *nodes: int) -> None:
    """Put GPU i on the i-th of these nodes."""
    for address, node in zip(("af", "3b", "41", "42"), nodes, strict=False):
        folder = system / "bus" / "pci" / "devices" / f"0000:{address}:00.0"
        folder.mkdir(parents=True)
        (folder / "numa_node").write_text(f"{node}\n")


class Driver:
    """The part of CUDA's driver that says where GPUs are."""

    def cuInit(self, flags):
        return 0

    def cuDeviceGet(self, device, ordinal):
        device._obj.value = ordinal
        return 0 if ordinal < len(ADDRESSES) else 101  # CUDA_ERROR_INVALID_DEVICE

    def cuDeviceGetPCIBusId(self, text, length, device):
        text.value = ADDRESSES[device.value]
        return 0


class Machine:
    """Eight cores; GPUs if it has a driver."""

    def __init__(self, monkeypatch, system: Path):
        self.allowed = set(range(8))
        self.bound = None
        self.has_driver = True
        self.system = system
        self._monkeypatch = monkeypatch
        monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(self.allowed))
        monkeypatch.setattr(os, "sched_setaffinity", self._bind)
        monkeypatch.setattr(ctypes, "CDLL", self._load)
        for name in RANK_VARIABLES:
            monkeypatch.delenv(name, raising=False)

    def _bind(self, thread, cores):
        self.bound = set(cores)

    def _load(self, name):
        if not self.has_driver:
            raise OSError(f"{name}: cannot open shared object file")
        return Driver()

    def line(self, device: str, rank: int = 0, ranks: int = 1) -> str:
        for name, value in zip(RANK_VARIABLES, (rank, rank, ranks, ranks), strict=True):
            self._monkeypatch.setenv(name, str(value))
        return bind_numa(device, self.system)


@pytest.fixture
def machine(monkeypatch, tmp_path):
    write_nodes(tmp_path, FOUR_NODES)
    return Machine(monkeypatch, tmp_path)


@pytest.mark.parametrize(
    ("device", "rank", "ranks", "cores", "line"),
    [
        ("2", 0, 1, {4, 5}, "NUMA node 2, 2 cores"),
        ("", 1, 2, {2, 3}, "rank 1: NUMA node 1, 2 cores"),
        ("0,3", 1, 2, {6, 7}, "rank 1: NUMA node 3, 2 cores"),
        ("cpu", 0, 1, set(range(8)), "NUMA nodes 0, 1, 2, 3, 8 cores"),
        ("cpu", 3, 8, {2, 3}, "rank 3: NUMA node 1, 2 cores"),
    ],
)
def test_a_rank_gets_the_node_of_its_gpu_or_its_part_of_them(
    machine, device, rank, ranks, cores, line
):
    write_gpus(machine.system, 0, 1, 2, 3)
    assert machine.line(device, rank, ranks) == line
    assert machine.bound == cores


def test_only_cores_that_the_process_may_use_are_bound(machine):
    write_gpus(machine.system, 2)
    machine.allowed = {1, 5, 6}
    assert (machine.line("0"), machine.bound) == ("NUMA node 2, 1 core", {5})
    machine.allowed, machine.has_driver = {2, 3, 6, 7}, False
    for rank, part in enumerate([{2, 3}, {6, 7}]):
        machine.line("", rank, 2)
        assert machine.bound == part


@pytest.mark.parametrize(
    ("device", "reason"),
    [
        ("0", "this process may use no core of node 2"),
        ("1", "this process may use no core of node 7"),
        ("2", "the system does not know the node of GPU 2"),
        ("3", "[Errno 2] No such file"),
        ("4", "this process sees no GPU 4"),
        ("0,1", "--device 0,1 names no GPU for local rank 2"),
    ],
)
def test_what_cannot_be_bound_is_one_line_and_stays_as_it_was(machine, device, reason):
    write_gpus(machine.system, 2, 7, -1)
    machine.allowed = {0, 1, 2}
    line = machine.line(device, 2, 3)
    assert line.startswith(f"rank 2: --bind-numa binds nothing: {reason}") and "\n" not in line
    assert machine.bound is None


@pytest.mark.parametrize("cpulists", [{}, {0: "0-7"}, {0: "0-7", 1: ""}])
def test_nothing_is_bound_on_one_node(tmp_path, cpulists):
    if cpulists:
        write_nodes(tmp_path, cpulists)
    assert bind_numa("cpu", tmp_path).endswith(": nothing to bind")


# In another process, because a binding cannot be undone.
BIND = """
import os, sys, threading
from pathlib import Path
from duet.utils.processes.numa import bind_numa
stop = threading.Event()
earlier = threading.Thread(target=stop.wait, daemon=True)  # as NumPy has some
earlier.start()
print(bind_numa("cpu", Path(sys.argv[1])))
assert os.sched_getaffinity(0) == os.sched_getaffinity(earlier.native_id) == {int(sys.argv[2])}
"""


def test_earlier_threads_get_the_cores_too(tmp_path):
    core, *others = sorted(os.sched_getaffinity(0))
    if not others:
        pytest.skip("one core: nothing can be narrowed")
    write_nodes(tmp_path, {0: str(core), 1: ",".join(map(str, others))})
    done = subprocess.run(
        [sys.executable, "-c", BIND, tmp_path, str(core)], capture_output=True, text=True,
        env={**os.environ, **dict(zip(RANK_VARIABLES, "0022", strict=True))}, check=False,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("rank 0: NUMA node 0, 1 core\n", "")


def test_without_its_file_nothing_is_bound(monkeypatch):
    monkeypatch.setattr(cores, "WINGS", ("duet.utils.processes.absent",))
    assert cores.bind_numa("cpu").startswith("--bind-numa binds nothing: ")
