"""The cores of a machine are shared by its ranks, and so are loader workers."""

import os

import pytest

from backend.cores import cores_of_rank
from utils.processes import cores as cores_module
from utils.processes.cores import loader_workers


@pytest.mark.parametrize(
    ("own", "launchers", "ranks", "cores"),
    [
        (16, 16, 1, 16),
        (16, 16, 4, 4),  # not bound
        (8, 16, 4, 4),  # bound to one of two nodes
        (2, 16, 4, 2),  # bound to fewer than its part
        (2, 2, 4, 1),
    ],
)
def test_a_rank_has_its_part_of_the_launchers_cores(monkeypatch, own, launchers, ranks, cores):
    of_process = {0: own, os.getppid(): launchers}
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(of_process[process])))
    for name, value in (("RANK", 0), ("LOCAL_RANK", 0), ("WORLD_SIZE", ranks)):
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(ranks))
    assert cores_of_rank() == cores
    monkeypatch.delenv("LOCAL_WORLD_SIZE")  # as OneFlow's launcher leaves it
    assert cores_of_rank() == cores


def test_only_the_ranks_of_this_machine_share_its_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(16)))
    for name, value in (("RANK", 9), ("LOCAL_RANK", 1), ("WORLD_SIZE", 16)):
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    assert (cores_of_rank(), loader_workers(8, "0"), loader_workers(0, "0")) == (2, 2, 0)


@pytest.mark.parametrize(
    ("device", "has_gpu", "cores", "workers"),
    [
        ("cpu", True, 1, 1),
        ("cpu", True, 4, 2),
        ("cpu", True, 16, 4),
        ("cpu", True, 64, 8),
        ("", False, 4, 2),
        ("", True, 4, 4),
        ("0", True, 4, 4),
        ("0", True, 64, 8),
    ],
)
def test_nobody_asked_so_cores_and_device_decide(monkeypatch, device, has_gpu, cores, workers):
    monkeypatch.setattr(cores_module, "cores_of_rank", lambda: cores)
    monkeypatch.setattr(cores_module, "load_driver", lambda: object() if has_gpu else None)
    assert loader_workers(None, device) == workers
    assert loader_workers(8, device) == min(8, cores)  # as asked for


@pytest.mark.parametrize(("library", "sees"), [("libc.so.6", True), ("libabsent.so.1", False)])
def test_a_driver_is_seen_by_its_library_or_its_device(monkeypatch, tmp_path, library, sees):
    monkeypatch.setattr(cores_module, "NVIDIA_DRIVER", library)
    monkeypatch.setattr(cores_module, "AMD_DRIVER", tmp_path / "kfd")
    assert cores_module.sees_driver() is sees
    (tmp_path / "kfd").touch()
    assert cores_module.sees_driver()
