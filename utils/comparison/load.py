"""The machine, and its load from other processes during a measurement.

The load average would include the measured work and the minutes before. Instead, this is the
processor time of the usable cores, minus this process and its descendants.
"""

import os
import platform
import shutil
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import psutil

from duet.backend.cores import THREADS, WAITING
from duet.backend.system import cores_of
from duet.utils.errors import UserError
from duet.utils.files.json_files import Document
from duet.utils.system.machine import descendants, processor

NOT_WORK = {"idle", "iowait", "guest", "guest_nice"}  # guests' time is a part of user's
SHORTEST = 0.2  # seconds; in less, one tick per core would exceed the load
SHARE = 0.1  # fraction of the usable cores; a higher load disturbs a measurement
# They set the number of threads, how threads wait, and whether a GPU rounds.
VARIABLES = (*WAITING, *THREADS, "CUDA_VISIBLE_DEVICES", "NVIDIA_TF32_OVERRIDE",
    "ONEFLOW_EP_CUDA_ENABLE_TF32_EXECUTION")  # fmt: skip


class LoadWatch:
    """Measures the load from other processes, from its creation on."""

    def __init__(self) -> None:
        self._start, self._taken = time.monotonic(), _seconds_of_others()

    def others(self) -> float | None:
        """Return how many cores other processes used on average.

        None in less than `SHORTEST`, as the system counts in ticks of 10 ms.
        """
        seconds, taken = time.monotonic() - self._start, _seconds_of_others() - self._taken
        return round(max(0.0, taken) / seconds, 2) if seconds >= SHORTEST else None


def disturbs(others: float | None, cores: int) -> bool:
    """Return whether other processes used enough of this many cores to make times doubtful."""
    return others is not None and others > SHARE * cores


def _seconds_of_others() -> float:
    """Return the processor time of the usable cores, without this process and its descendants."""
    cores, usable = enumerate(psutil.cpu_times(percpu=True)), cores_of()
    used = (core._asdict().items() for number, core in cores if number in usable)
    all_work = sum(time for core in used for name, time in core if name not in NOT_WORK)
    return all_work - _own_seconds()


def _own_seconds() -> float:
    return sum(os.times()[:2]) + children_seconds()


def children_seconds() -> float:
    """Return the processor time of the descendants of this process."""
    seconds = sum(os.times()[2:4])  # finished child processes
    for process in descendants(os.getpid()):
        with suppress(psutil.Error):  # it may have ended meanwhile
            seconds += sum(process.cpu_times()[:4])  # including its finished children
    return seconds


def describe_machine() -> dict[str, object]:
    """Return processor, cores, memory, system, GPUs and variables read by frameworks."""
    return {
        "processor": processor(),
        "cores": len(cores_of()),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "gpus": gpus(),
        "variables": {name: os.environ[name] for name in VARIABLES if name in os.environ},
    }


def require_same_machine(before: Document, now: Document, folder: Path) -> None:
    """Raise UserError if the results in a folder were measured on another machine."""
    changed = [name for name in now if now[name] != before.get(name)]
    if changed:
        listed = "; ".join(f"{name} was {before.get(name)}, is {now[name]}" for name in changed)
        raise UserError(
            f"--resume {folder}: started on another machine ({listed}); start a new comparison"
        )


def gpus() -> list[str]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    command = [program, "--query-gpu=name,driver_version", "--format=csv,noheader"]
    done = subprocess.run(command, capture_output=True, encoding="locale", timeout=60, check=False)
    return done.stdout.splitlines() if done.returncode == 0 else []
