"""Processor, memory and their use, as the operating system reports them; limits of a process."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from duet.backend.system import cores_of

with suppress(ImportError):  # not on Windows
    import resource

STAT = Path("/proc/stat")
# Columns of /proc/stat: user, nice, system, irq, softirq, steal; idle and iowait are not work.
WORK = (1, 2, 3, 6, 7, 8)
TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100  # a second


def memory_bytes() -> int:
    """Return the memory of the machine in bytes; 0 on Windows, where nothing reports it."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0


def available_memory() -> int:
    """Return the bytes that programs can still get; unlimited if the system does not report it."""
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
    except OSError:
        text = ""
    available = text.partition("MemAvailable:")[2]
    return int(available.split()[0]) * 1024 if available else sys.maxsize


def processor() -> str:
    """Return the processor's name; the machine type if the system reports none."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def load_average() -> float:
    """Return the load average of the last minute; 0 on Windows, which has none."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else 0.0


def seconds_of_cores() -> float | None:
    """Return the processor time of all processes on the cores of this one; None if unknown."""
    cores = {f"cpu{core}" for core in cores_of()}
    try:
        lines = [line.split() for line in STAT.read_text(encoding="ascii").splitlines()]
    except OSError:
        return None
    return sum(int(line[column]) for line in lines if line[0] in cores for column in WORK) / TICKS


def seconds_of_process(process: int) -> float:
    """Return the processor time of a process and its ended children; OSError if it has ended."""
    fields = Path("/proc", str(process), "stat").read_text(encoding="utf-8", errors="replace")
    return sum(map(int, fields.rpartition(")")[2].split()[11:15])) / TICKS


def peak_kib_of_process(process: int) -> int:
    """Return the peak of the resident size of a process; OSError if it has ended."""
    lines = Path("/proc", str(process), "status").read_bytes().splitlines()
    return max((int(x.split()[1]) for x in lines if x.startswith(b"VmHWM:")), default=0)


def configure_malloc(options: Mapping[int, int]) -> bool:
    """Set options of glibc's malloc; return False without glibc."""
    if sys.platform != "linux" or platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return all([mallopt(name, value) for name, value in options.items()])


def limit_memory(size: int) -> None:
    """On Linux, let this process map at most `size` bytes more, and write no core file."""
    if sys.platform != "linux":
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    page = os.sysconf("SC_PAGE_SIZE")
    mapped = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * page
    limit = mapped + min(size, memory_bytes())
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))  # may be raised again
