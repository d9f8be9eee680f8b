"""What a process has: cores, workers, memory kept for reuse, and the texts of other ranks."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from duet.backend.cores import cores_of_rank
from duet.utils.processes import cores as cores_module
from duet.utils.processes.cores import loader_workers
from tests.rank_threads import run_rank_threads

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


FAULTS = """
import platform, resource, sys
import numpy as np
from duet.utils import memory
if sys.argv[1] != "plain":
    assert getattr(memory, sys.argv[1])() == (platform.libc_ver()[0] == "glibc")
for turn in range(4):
    if turn == 1:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.ones(int(sys.argv[2]) * 2**20, np.uint8)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before, platform.libc_ver()[0])
"""


def faults(mode, mebibytes=16):
    done = subprocess.run(
        [sys.executable, "-c", FAULTS, mode, str(mebibytes)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    count, library = done.stdout.split()
    if library != "glibc":
        pytest.skip(f"the C library is {library}")
    return int(count)


@pytest.mark.parametrize("keep", ["keep_freed_memory", "keep_freed_images"])
def test_memory_that_was_freed_is_used_again_without_page_faults(keep):
    # Three arrays of 16 MiB are 12,288 pages of 4 KiB, or 24 of 2 MiB.
    assert faults(keep) < max(faults("plain") / 10, 10)


def test_a_worker_gives_back_what_a_huge_image_took():
    # Three arrays of 48 MiB are 72 pages even of 2 MiB, and all of them fault again.
    assert faults("keep_freed_images", 48) >= 72 > faults("keep_freed_memory", 48)


# The folder of a run may have any name that a file may have.
NAMES = ["", "runs/exp", "runs/größe", os.fsdecode(b"caf\xe9\n")]


@pytest.mark.parametrize("name", NAMES)
def test_every_rank_has_the_text_of_the_first(name):
    def ask(world):
        own = name if world.process.is_main else ""
        return world.broadcast_text(own), world.all_have(name), world.all_have(own)

    assert run_rank_threads(3, ask) == [(name, True, name == "")] * 3
