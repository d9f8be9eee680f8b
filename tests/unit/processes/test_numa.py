"""--bind-numa: which cores a rank gets, by a made tree of /sys, and that its children keep them."""

import os

import pytest

from duet import train
from duet.backend.system import can_bind
from duet.utils.errors import UserError
from duet.utils.processes import cores
from duet.utils.processes.cores import cores_in, cores_to_use, node_of_gpu
from tests.environments import python

ALL = set(range(8))


@pytest.fixture
def nodes(tmp_path):
    """Two nodes of four cores, and one that has memory only."""
    for number, listed in enumerate(("0-1,4-5\n", "2-3,6-7\n", "\n")):
        (tmp_path / f"node{number}").mkdir()
        (tmp_path / f"node{number}" / "cpulist").write_text(listed)
    return tmp_path


def test_core_lists_are_parsed():
    assert cores_in("0-2,5\n") == {0, 1, 2, 5} and cores_in("\n") == set()


@pytest.mark.parametrize(
    ("node", "rank", "ranks", "own", "wanted"),
    [
        (1, 0, 2, ALL, {2, 3, 6, 7}),  # of its GPU
        (1, 0, 2, {0, 1, 6}, {6}),  # what a container may use of it
        (2, 0, 2, ALL, ALL),  # no core on that node
        (9, 0, 2, ALL, ALL),  # not known
        (None, 0, 1, ALL, ALL),  # one process has all nodes
        (None, 0, 2, ALL, {0, 1, 4, 5}),
        (None, 1, 2, ALL, {2, 3, 6, 7}),
        (None, 2, 4, ALL, {2, 3, 6, 7}),
        (None, 1, 2, {2, 3}, {2, 3}),
    ],
)
def test_rank_gets_the_cores_of_its_node(nodes, node, rank, ranks, own, wanted):
    assert cores_to_use(node, rank, ranks, own, nodes) == wanted


def test_system_without_nodes_keeps_its_cores(tmp_path):
    assert cores_to_use(None, 1, 2, ALL, tmp_path / "absent") == ALL


def test_numa_node_of_a_gpu_is_read(tmp_path):
    for address, text in (("0000:3b:00.0", "1\n"), ("0000:5e:00.0", "-1\n")):
        (tmp_path / address).mkdir()
        (tmp_path / address / "numa_node").write_text(text)
    assert node_of_gpu("0000:3b:00.0", tmp_path) == 1
    for unknown in ("0000:5e:00.0", "0000:af:00.0", ""):
        assert node_of_gpu(unknown, tmp_path) is None


@pytest.mark.parametrize(
    ("device", "rank", "index"),
    [("", 1, 1), ("cuda", 0, 0), ("1", 0, 1), ("cuda:1", 0, 1), ("2,3", 1, 3)],
)
def test_gpu_of_a_rank_follows_the_device_flag(monkeypatch, device, rank, index):
    class Driver:
        def cuDeviceGetPCIBusId(self, address, length, number):  # noqa: N802  as in CUDA
            address.value = b"0000:3B:00.%d" % number
            return 0

    monkeypatch.setattr(cores, "load_driver", Driver)
    assert cores.gpu_address(device, rank) == f"0000:3b:00.{index}"


PROGRAM = """
import logging, subprocess, sys
from pathlib import Path
logging.basicConfig(level=logging.INFO, format="%(message)s")
from duet.utils.processes import cores
cores.cores_to_use.__defaults__ = (Path(sys.argv[1]),)
cores.bind_to_node("cpu")
print(subprocess.run([sys.executable, "-c", "import os; print(sorted(os.sched_getaffinity(0)))"],
                     capture_output=True, text=True).stdout)
"""


@pytest.mark.skipif(not can_bind(), reason="the system binds no processes")
def test_children_keep_the_numa_binding(tmp_path):
    own = sorted(os.sched_getaffinity(0))
    if len(own) < 2:
        pytest.skip("one core")
    for number, core in enumerate(own):
        (tmp_path / f"node{number}").mkdir()
        (tmp_path / f"node{number}" / "cpulist").write_text(f"{core}\n")
    ranks = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": str(len(own))}
    done = python("-c", PROGRAM, tmp_path, **ranks)
    assert done.stdout.strip() == f"[{own[1]}]", done.stderr
    assert f"--bind-numa: local rank 1 on 1 of {len(own)} cores" in done.stderr


def test_call_from_python_binds_nothing():
    with pytest.raises(UserError, match="--bind-numa does not work from Python; leave it out"):
        train(data="shapes", bind_numa=True)
