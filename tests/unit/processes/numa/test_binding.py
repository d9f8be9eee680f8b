"""--bind-numa: which cores and memory a rank gets, and what the line at the start says."""

import ctypes
import os
import platform
import subprocess
import sys

import pytest

import train
import val
from models.training import doctor
from tests.small import write_small_dataset
from tests.unit.processes.numa.fake_numa import FakeDriver, write_gpu, write_nodes
from utils.errors import UserError
from utils.processes.numa import binding
from utils.processes.numa.binding import bind_numa
from utils.processes.numa.memory import prefer_node

FOUR_NODES = {0: "0-1", 1: "2-3", 2: "4-5", 3: "6-7"}
RANK_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")


class Machine:
    """What a process may use and what it asked the system for."""

    def __init__(self):
        self.allowed = set(range(8))
        self.bound = None
        self.preferred = None

    def bind(self, thread, cores):
        self.bound = set(cores)

    def prefer(self, node):
        self.preferred = node
        return ""


@pytest.fixture
def machine(monkeypatch):
    """Eight cores, no GPU, no launcher."""
    machine = Machine()
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(machine.allowed))
    monkeypatch.setattr(os, "sched_setaffinity", machine.bind)
    monkeypatch.setattr(binding, "prefer_node", machine.prefer)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: FakeDriver())
    for name in RANK_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return machine


def set_rank(monkeypatch, rank, world_size):
    for name, value in zip(RANK_VARIABLES, (rank, rank, world_size, world_size), strict=True):
        monkeypatch.setenv(name, str(value))


def add_gpus(monkeypatch, system, *nodes):
    """Put GPU i on the i-th of these nodes."""
    monkeypatch.setattr(
        ctypes, "CDLL", lambda name: FakeDriver(*(f"0000:0{i}:00.0".encode() for i in range(9)))
    )
    for index, node in enumerate(nodes):
        write_gpu(system, f"0000:0{index}:00.0", node)


@pytest.mark.parametrize("cpulists", [{}, {0: "0-7"}, {0: "0-7", 1: ""}])
def test_nothing_is_bound_on_one_node(tmp_path, machine, cpulists):
    if cpulists:
        write_nodes(tmp_path, cpulists)
    assert bind_numa("cpu", tmp_path).endswith(": nothing to bind")
    assert (machine.bound, machine.preferred) == (None, None)


@pytest.mark.parametrize("device", ["2", "cuda:2"])
def test_a_gpus_process_gets_its_node(tmp_path, machine, monkeypatch, device):
    write_nodes(tmp_path, FOUR_NODES)
    add_gpus(monkeypatch, tmp_path, 0, 0, 2, 3)
    line = bind_numa(device, tmp_path)
    assert line == "NUMA node 2, cores 4-5, memory of the same node first"
    assert (machine.bound, machine.preferred) == ({4, 5}, 2)


@pytest.mark.parametrize(("device", "node"), [("", 1), ("0,3", 3), ("2", 2)])
def test_a_rank_gets_the_node_of_its_own_gpu(tmp_path, machine, monkeypatch, device, node):
    write_nodes(tmp_path, FOUR_NODES)
    add_gpus(monkeypatch, tmp_path, 0, 1, 2, 3)
    set_rank(monkeypatch, 1, 2)
    assert bind_numa(device, tmp_path).startswith(f"rank 1: NUMA node {node}, ")
    assert machine.preferred == node


@pytest.mark.parametrize(
    ("world_size", "expected"),
    [
        (2, [{0, 1, 2, 3}, {4, 5, 6, 7}]),
        (4, [{0, 1}, {2, 3}, {4, 5}, {6, 7}]),
        (8, [{0, 1}, {0, 1}, {2, 3}, {2, 3}, {4, 5}, {4, 5}, {6, 7}, {6, 7}]),
    ],
)
def test_ranks_on_the_cpu_are_spread_over_the_nodes(
    tmp_path, machine, monkeypatch, world_size, expected
):
    write_nodes(tmp_path, FOUR_NODES)
    for rank, cores in enumerate(expected):
        set_rank(monkeypatch, rank, world_size)
        bind_numa("cpu", tmp_path)
        assert machine.bound == cores


def test_one_process_on_the_cpu_keeps_all_nodes(tmp_path, machine):
    write_nodes(tmp_path, FOUR_NODES)
    line = bind_numa("", tmp_path)  # without a GPU
    assert line.startswith("NUMA nodes 0-3, cores 0-7 (bound before the start)")
    assert machine.bound == machine.allowed and machine.preferred is None


def test_only_cores_that_the_process_may_use_are_bound(tmp_path, machine, monkeypatch):
    write_nodes(tmp_path, FOUR_NODES)
    add_gpus(monkeypatch, tmp_path, 2)
    machine.allowed = {1, 5, 6}
    assert "cores 5, " in bind_numa("0", tmp_path)
    assert machine.bound == {5}


def test_ranks_on_the_cpu_are_spread_over_the_nodes_that_may_be_used(
    tmp_path, machine, monkeypatch
):
    write_nodes(tmp_path, FOUR_NODES)
    machine.allowed = {2, 3, 6, 7}
    for rank, cores in enumerate([{2, 3}, {6, 7}]):
        set_rank(monkeypatch, rank, 2)
        bind_numa("cpu", tmp_path)
        assert machine.bound == cores


def test_what_a_launcher_has_bound_is_said_and_its_memory_bound_too(tmp_path, machine, monkeypatch):
    write_nodes(tmp_path, FOUR_NODES)
    add_gpus(monkeypatch, tmp_path, 2)
    machine.allowed = {4, 5}
    line = bind_numa("0", tmp_path)
    assert line == (
        "NUMA node 2, cores 4-5 (bound before the start), memory of the same node first"
    )
    assert (machine.bound, machine.preferred) == ({4, 5}, 2)


def test_a_node_without_memory_leaves_the_memory_unbound(tmp_path, machine, monkeypatch):
    write_nodes(tmp_path, FOUR_NODES, memory="0-1,3")
    add_gpus(monkeypatch, tmp_path, 2)
    assert "memory left unbound: the node has none" in bind_numa("0", tmp_path)
    assert (machine.bound, machine.preferred) == ({4, 5}, None)


@pytest.mark.parametrize(
    ("device", "allowed", "reason"),
    [
        ("0", {0, 1}, "this process may use no core of node 2"),
        ("1", {0, 1}, "GPU 1 is on node 7, which has no cores"),
        ("2", {0, 1}, "the system does not say on which node GPU 2 is"),
        ("gpu", {0, 1}, "--device gpu names no GPU for local rank 0"),
    ],
)
def test_what_cannot_be_bound_is_one_line_and_stays_as_it_was(
    tmp_path, machine, monkeypatch, device, allowed, reason
):
    write_nodes(tmp_path, FOUR_NODES)
    add_gpus(monkeypatch, tmp_path, 2, 7, -1)
    machine.allowed = allowed
    line = bind_numa(device, tmp_path)
    assert line.startswith(f"--bind-numa binds nothing: {reason}") and "\n" not in line
    assert (machine.bound, machine.preferred) == (None, None)


def test_a_list_of_gpus_that_lacks_a_ranks_own_is_one_line(tmp_path, machine, monkeypatch):
    write_nodes(tmp_path, FOUR_NODES)
    set_rank(monkeypatch, 2, 3)
    assert "--device 0,1 names no GPU for local rank 2" in bind_numa("0,1", tmp_path)


def test_a_malformed_list_of_cores_is_one_line(tmp_path, machine):
    write_nodes(tmp_path, {0: "0-3", 1: "x"})
    assert bind_numa("cpu", tmp_path).startswith("--bind-numa binds nothing: ")
    assert machine.bound is None


def test_a_system_that_refuses_to_bind_cores_is_one_line(tmp_path, machine, monkeypatch):
    def refuse(thread, cores):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    write_nodes(tmp_path, FOUR_NODES)
    assert "binds nothing: [Errno 1] Operation not permitted" in bind_numa("cpu", tmp_path)
    assert machine.preferred is None


def test_memory_that_cannot_be_bound_is_told_in_the_line(tmp_path, machine, monkeypatch):
    write_nodes(tmp_path, FOUR_NODES)
    add_gpus(monkeypatch, tmp_path, 2)
    monkeypatch.setattr(binding, "prefer_node", lambda node: "the system refuses it: why")
    line = bind_numa("0", tmp_path)
    assert line == "NUMA node 2, cores 4-5, memory left unbound: the system refuses it: why"
    assert machine.bound == {4, 5}


def test_a_node_that_is_not_there_or_an_unknown_machine_says_why_memory_is_not_bound(monkeypatch):
    assert prefer_node(1000).startswith("the system refuses it: ")
    monkeypatch.setattr(platform, "machine", lambda: "pdp11")
    assert prefer_node(0) == "its system call is not known on pdp11"


@pytest.mark.parametrize(("machine_name", "number"), [("x86_64", 238), ("aarch64", 237)])
def test_the_system_call_gets_a_mask_with_the_nodes_bit(monkeypatch, machine_name, number):
    calls = []

    class Library:
        def syscall(self, *arguments):
            calls.append(arguments)
            return 0

    monkeypatch.setattr(platform, "machine", lambda: machine_name)
    monkeypatch.setattr(ctypes, "CDLL", lambda name, use_errno: Library())
    assert prefer_node(70) == ""
    [(called, mode, mask, bits)] = calls
    assert (called, mode, list(mask), bits) == (number, 1, [0, 1 << 6], 129)


# In another process, because a binding cannot be undone.
BIND_AND_LOAD = """
import multiprocessing, os, sys, threading
from pathlib import Path
from utils.data.augment.strengths import AugmentConfig
from utils.data.sources.labels import scan_samples
from utils.data.loading.loader import TrainLoader
from utils.data.sources.dataset import load_dataset
from utils.data.sources.image_files import list_images
from utils.processes.numa.binding import bind_numa

system, data, core = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
stop = threading.Event()
earlier = threading.Thread(target=stop.wait, daemon=True)  # as NumPy has some
earlier.start()
line = bind_numa("cpu", system)
print(line)
assert os.sched_getaffinity(0) == os.sched_getaffinity(earlier.native_id) == {core}
stop.set()
samples = scan_samples(list_images(load_dataset(data).train), num_classes=5).samples
with TrainLoader(samples, 64, 2, AugmentConfig(), 0, workers=1) as loader:
    next(loader.epoch(0))
    [worker] = multiprocessing.active_children()
    assert os.sched_getaffinity(worker.pid) == {core}
    policy = Path(f"/proc/{worker.pid}/numa_maps")
    if "unbound" not in line and policy.exists():
        assert " prefer:0 " in policy.read_text()
"""


def test_a_loader_worker_inherits_cores_and_memory_and_earlier_threads_get_the_cores(tmp_path):
    core, *others = sorted(os.sched_getaffinity(0))
    if not others:
        pytest.skip("one core: nothing can be narrowed")
    # Node 0 of this machine is real, so that its memory can be bound; its cores are split in two.
    write_nodes(tmp_path, {0: str(core), 1: ",".join(map(str, others))})
    done = subprocess.run(
        [sys.executable, "-c", BIND_AND_LOAD, tmp_path, write_small_dataset(tmp_path), str(core)],
        env={**os.environ, **dict(zip(RANK_VARIABLES, "0022", strict=True))},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"rank 0: NUMA node 0, cores {core}, memory ")


@pytest.mark.parametrize("command", [train, val, doctor])
def test_a_command_binds_before_it_reads_and_only_where_it_is_asked_to(
    command, monkeypatch, tmp_path
):
    class Bound(Exception):
        pass

    def bind(device):
        raise Bound(device)

    monkeypatch.setattr(command, "bind_numa", bind)
    (tmp_path / "F").touch()  # is there, and holds no weights
    task = [] if command is val else ["--task", "detect"]  # else they tell it, before that
    flags = ["command", "--weights", str(tmp_path / "F"), "--data", "nowhere", "--device", "cpu"]
    flags += task
    monkeypatch.setattr("sys.argv", flags)
    with pytest.raises(UserError):
        command.main()
    monkeypatch.setattr("sys.argv", [*flags, "--bind-numa"])
    with pytest.raises(Bound, match="cpu"):
        command.main()
