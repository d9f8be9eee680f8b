"""This process's device among those that the user names, and the host's memory; no framework."""

from __future__ import annotations

import ctypes
import os
import re
import resource
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from duet.backend.checks import CPU
from duet.backend.processes import this_process
from duet.backend.select import FRAMEWORKS, BackendError

# The driver's library, by which every framework reaches an NVIDIA GPU; and AMD's device.
NVIDIA_DRIVER, AMD_DRIVER = "libcuda.so.1", Path("/dev/kfd")
NAME = re.compile(r"cpu|(cuda:)?\d+")
CLEAR_REFERENCES, STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")
RESET_PEAK = "5"  # man 5 proc: sets the peak to what the process has now
PEAK = "VmHWM:"


def check_device(name: str, backend: str = "") -> None:
    """Raise BackendError for what --device cannot mean, before a framework is imported.

    backend: that computes on it; "" if it is not known yet.
    """
    if backend:
        require_cpu(backend, name)
    devices = name.split(",")
    if name and not all(map(NAME.fullmatch, devices)):
        raise BackendError(f"--device {name!r}: cpu, a GPU's number such as 0, or 0,1 is needed")
    if set(devices) - {"", CPU} and not sees_driver():
        raise BackendError(
            f"--device {name!r} is not there: this machine shows no GPU driver "
            f"({NVIDIA_DRIVER}); use --device cpu, or install NVIDIA's driver"
        )


def sees_driver() -> bool:
    """Return whether a driver of GPUs is installed; it may still serve none."""
    try:
        ctypes.CDLL(NVIDIA_DRIVER)
    except OSError:
        return AMD_DRIVER.exists()
    return True


def own_device(name: str, usable: Sequence[str]) -> str:
    """Return this process's device, as `contract.Device.resolve` promises.

    Args:
        name: what the user wrote.
        usable: the devices that this process can use: GPUs, then the CPU.
    """
    gpus = [device for device in usable if device != CPU]
    if name == CPU or (name == "" and not gpus):
        return CPU
    wanted = _listed(name, usable) if name else gpus
    process = this_process()
    if process.world_size == 1:
        if name and len(wanted) > 1:
            raise BackendError(
                f"--device {name!r}: {len(wanted)} devices, but this is one process; name "
                "one. train.py starts a process for each"
            )
        return wanted[0]
    if process.local_rank >= len(wanted):
        raise BackendError(
            f"this machine has {process.local_rank + 1} or more processes, but --device {name!r} "
            f"gives {len(wanted)}: {', '.join(wanted)}; start as many processes as devices, or "
            "use --device cpu"
        )
    return wanted[process.local_rank]


def present_device(device: str, usable: Sequence[str]) -> str:
    """Return a device that `own_device` chose; BackendError if it is not there."""
    if device not in usable:
        raise BackendError(f"device {device!r} is not there; this process has: {', '.join(usable)}")
    return device


def require_cpu(backend: str, name: str) -> None:
    """Raise BackendError for a GPU under a backend that computes only on the CPU."""
    if name not in ("", CPU) and not FRAMEWORKS[backend].on_gpus:
        others = " or ".join(other for other, row in FRAMEWORKS.items() if row.on_gpus)
        raise BackendError(
            f"--device {name!r}: backend {backend} computes on the CPU; use --device cpu, or "
            f"--backend {others}"
        )


def tf32_is_overridden() -> bool:
    """Return whether NVIDIA's libraries were told to round nothing to TF32, for all frameworks.

    Source: NVIDIA_TF32_OVERRIDE in the documentation of cuBLAS and cuDNN; any other value is the
    same as none.
    """
    return os.environ.get("NVIDIA_TF32_OVERRIDE") == "0"


def _listed(name: str, usable: Sequence[str]) -> list[str]:
    """Return the devices of a list such as "0,1"; BackendError for one that is not there."""
    wanted = [f"cuda:{part}" if part.isdecimal() else part for part in name.split(",")]
    if CPU in wanted or not set(wanted) <= set(usable):
        raise BackendError(f"--device {name!r} is not there; this process has: {', '.join(usable)}")
    return wanted


def peak_during(run: Callable[[], object]) -> int:
    """Return the most bytes that this process has in memory during a call, or has had before it
    if the system does not forget.
    """
    with suppress(OSError):  # no Linux, or /proc is read-only
        CLEAR_REFERENCES.write_text(RESET_PEAK)
    run()
    try:
        lines = STATUS.read_text().splitlines()
        (kibibytes,) = (int(line.split()[1]) for line in lines if line.startswith(PEAK))
    except (OSError, ValueError):
        kibibytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return kibibytes * 1024
