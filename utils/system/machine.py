"""Processor, load and memory of the machine, and the processes that one has started."""

import ctypes
import os
import platform
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from duet.utils.system.children import blocked, call_c_library

PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
POLL_SECONDS = 0.05


def processor() -> str:
    """Return the processor's name; the machine type if the system reports none."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def load_average() -> float:
    """Return the load average of the last minute."""
    return round(psutil.getloadavg()[0], 2)


def configure_malloc(options: Mapping[int, int]) -> bool:
    """Set options of glibc's malloc; return False without glibc."""
    if sys.platform != "linux" or platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return all([mallopt(name, value) for name, value in options.items()])


def descendants(process: int) -> list[psutil.Process]:
    with suppress(psutil.Error):
        return list(psutil.Process(process).children(recursive=True))
    return []


@contextmanager
def ending_children() -> Iterator[None]:
    """Kill all processes started in the block, and what they started, when it ends.

    Beside Linux, the children of one that has ended are left.
    """
    if sys.platform == "linux":
        call_c_library("prctl", PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # orphans become children
    others = set(descendants(os.getpid()))
    try:
        yield
    finally:
        with blocked({signal.SIGINT}):
            while left := [child for child in descendants(os.getpid()) if child not in others]:
                for process in left:
                    with suppress(psutil.Error):
                        process.kill()
                psutil.wait_procs(left, POLL_SECONDS)


def peak_kib_of_process(process: int) -> int:
    """Return the peak of the resident size of a process, on Linux; 0 once it has ended."""
    with suppress(OSError):
        lines = Path("/proc", str(process), "status").read_bytes().splitlines()
        return max((int(x.split()[1]) for x in lines if x.startswith(b"VmHWM:")), default=0)
    return 0
