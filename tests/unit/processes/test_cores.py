"""The cores of a process: its part of the launcher's, and its loader workers."""

from __future__ import annotations

import os

import pytest

from duet.backend.cores import cores_of_rank
from duet.utils.processes import cores as cores_module
from duet.utils.processes.cores import loader_workers

RANK_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")


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
    for name, value in zip(RANK_VARIABLES, (0, 0, ranks, ranks), strict=True):
        monkeypatch.setenv(name, str(value))
    assert cores_of_rank() == cores
    monkeypatch.delenv("LOCAL_WORLD_SIZE")  # as OneFlow's launcher leaves it
    assert cores_of_rank() == cores


@pytest.mark.parametrize(
    ("device", "has_gpu", "cores", "workers"),
    [
        ("cpu", True, 1, 1),
        ("cpu", True, 16, 4),
        ("cpu", True, 64, 8),
        ("", False, 4, 2),
        ("", True, 4, 4),
        ("0", True, 64, 8),
    ],
)
def test_nobody_asked_so_cores_and_device_decide(monkeypatch, device, has_gpu, cores, workers):
    monkeypatch.setattr(cores_module, "cores_of_rank", lambda: cores)
    monkeypatch.setattr(cores_module, "load_driver", lambda: object() if has_gpu else None)
    assert loader_workers(None, device) == workers
    assert loader_workers(8, device) == min(8, cores)  # as asked for
