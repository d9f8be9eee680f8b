"""NUMA nodes as sysfs describes them, and where GPUs are among them."""

import ctypes

import pytest

from tests.unit.processes.numa.fake_numa import FakeDriver, write_gpu, write_nodes
from utils.processes.numa.gpus import UnknownNode, gpu_node
from utils.processes.numa.topology import format_numbers, read_nodes


@pytest.fixture
def driver(monkeypatch):
    """Two GPUs, the first one behind the second on the bus, as CUDA may number them."""
    driver = FakeDriver(b"0000:AF:00.0", b"00000000:3B:00.0")
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver)
    return driver


def test_each_node_has_its_cores(tmp_path):
    write_nodes(tmp_path, {0: "0-3,8-11", 1: "4-7,12"})
    first, second = read_nodes(tmp_path)
    assert (first.number, second.number) == (0, 1)
    assert first.cores == {0, 1, 2, 3, 8, 9, 10, 11} and second.cores == {4, 5, 6, 7, 12}
    assert first.has_memory and second.has_memory


def test_a_node_without_memory_is_known_as_such(tmp_path):
    write_nodes(tmp_path, {0: "0-1", 1: "2-3"}, memory="0")
    assert [node.has_memory for node in read_nodes(tmp_path)] == [True, False]


def test_a_node_that_is_offline_or_has_no_cores_is_left_out(tmp_path):
    write_nodes(tmp_path, {0: "0-1", 1: "2-3", 2: "", 3: "4"}, online="0,2-3")
    assert [node.number for node in read_nodes(tmp_path)] == [0, 3]


def test_a_system_without_numa_has_no_nodes(tmp_path):
    assert read_nodes(tmp_path) == []


@pytest.mark.parametrize("text", ["0-", "a", "3-1", "-1", "0,,1", "0-1-2"])
def test_a_malformed_list_of_cores_names_its_file(tmp_path, text):
    write_nodes(tmp_path, {0: "0", 1: text})
    with pytest.raises(ValueError, match="node1/cpulist holds"):
        read_nodes(tmp_path)


@pytest.mark.parametrize(
    ("numbers", "text"), [((), ""), ((4,), "4"), ((3, 0, 1, 2, 8), "0-3,8"), ((1, 3), "1,3")]
)
def test_numbers_are_written_as_the_kernel_writes_them(numbers, text):
    assert format_numbers(numbers) == text


def test_a_gpu_is_found_by_the_drivers_numbers_not_by_its_place_on_the_bus(tmp_path, driver):
    write_gpu(tmp_path, "0000:3b:00.0", node=0)
    write_gpu(tmp_path, "0000:af:00.0", node=2)
    assert [gpu_node(0, tmp_path), gpu_node(1, tmp_path)] == [2, 0]


def test_a_gpu_whose_node_is_not_known_is_an_error_that_says_why(tmp_path, driver, monkeypatch):
    write_gpu(tmp_path, "0000:3b:00.0", node=-1)
    with pytest.raises(UnknownNode, match="does not say on which node GPU 1 is"):
        gpu_node(1, tmp_path)
    with pytest.raises(UnknownNode, match="node of GPU 0 cannot be read"):
        gpu_node(0, tmp_path)
    with pytest.raises(UnknownNode, match="sees no GPU 2"):
        gpu_node(2, tmp_path)
    driver.cuDeviceGetPCIBusId = lambda text, length, device: 1
    with pytest.raises(UnknownNode, match="driver does not say where GPU 0 is"):
        gpu_node(0, tmp_path)
    driver.addresses = ()
    with pytest.raises(UnknownNode, match="libcuda"):
        gpu_node(0, tmp_path)


def test_a_machine_without_the_driver_is_an_error_that_says_so(tmp_path, monkeypatch):
    def missing(name):
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    with pytest.raises(UnknownNode, match="libcuda.so.1 cannot be loaded"):
        gpu_node(0, tmp_path)
