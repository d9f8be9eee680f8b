"""Choose this process's device; imports no framework."""

import ctypes
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from duet.backend.checks import CPU
from duet.backend.processes import this_process
from duet.backend.select import FRAMEWORKS, BackendError
from duet.backend.system import NVIDIA_DRIVER

AMD_DRIVER = Path("/dev/kfd")
MPS = "mps"  # an Apple GPU, which only PyTorch can use
NAME = re.compile(r"cpu|mps|cuda|(cuda:)?\d+")
# Messages of PyTorch and OneFlow on a CPU, oneDNN (under a memory limit), CUDA, cuDNN and cuBLAS.
NO_MEMORY = (
    "can't allocate memory", "allocate failed", "could not create a primitive", "out of memory",
    "_STATUS_ALLOC_FAILED",
)  # fmt: skip


def check_device(name: str, backend: str = "") -> None:
    """Raise BackendError for an invalid --device, before a framework is imported.

    backend: its backend, "" if not known yet.
    """
    if backend:
        require_cpu(backend, name)
    devices = name.split(",")
    if name and not all(map(NAME.fullmatch, devices)):
        accepted = "accepted: cpu, cuda, a GPU such as 0, or 0,1, or mps"
        raise BackendError(f"--device {name!r} is invalid; {accepted}")
    if MPS in devices and (backend not in ("", "torch") or name != MPS):
        raise BackendError(f"--device {name!r}: mps needs --backend torch, and is one device")
    if set(devices) - {"", CPU, MPS} and not sees_driver():
        raise BackendError(
            f"--device {name!r} is not available: no GPU driver found ({NVIDIA_DRIVER}); use "
            "--device cpu, or install NVIDIA's driver"
        )


def sees_driver() -> bool:
    try:
        ctypes.CDLL(NVIDIA_DRIVER)
    except OSError:
        return AMD_DRIVER.exists()
    return True


def own_device(name: str, usable: Sequence[str]) -> str:
    """Return this process's device, as `contract.Device.resolve` promises.

    Args:
        name: the user's --device.
        usable: devices that this process can use: GPUs, then the CPU. An Apple GPU must be named:
            nobody has run it yet.
    """
    gpus = [device for device in usable if device not in (CPU, MPS)]
    if name == CPU or (name == "" and not gpus):
        return CPU
    wanted = _listed(name, usable) if name else gpus
    process = this_process()
    if process.world_size == 1:
        if name and len(wanted) > 1:
            raise BackendError(
                f"--device {name!r} names {len(wanted)} devices, but this is a single process; "
                "name one. train.py starts one process per device"
            )
        return wanted[0]
    if process.local_rank >= len(wanted):
        raise BackendError(
            f"at least {process.local_rank + 1} processes run on this machine, but --device "
            f"{name!r} provides {len(wanted)}: {', '.join(wanted)}; start one process per device, "
            "or use --device cpu"
        )
    return wanted[process.local_rank]


def missing_device(device: str, usable: Sequence[str]) -> BackendError:
    return BackendError(f"device {device!r} is not available; available: {', '.join(usable)}")


def require_cpu(backend: str, name: str) -> None:
    if name not in ("", CPU) and not FRAMEWORKS[backend].on_gpus:
        others = " or ".join(other for other, row in FRAMEWORKS.items() if row.on_gpus)
        raise BackendError(
            f"--device {name!r}: backend {backend} runs only on the CPU; use --device cpu, or "
            f"--backend {others}"
        )


def tf32_is_overridden() -> bool:
    """Return whether TF32 is disabled in NVIDIA's libraries, for all frameworks.

    Source: NVIDIA_TF32_OVERRIDE in the cuBLAS and cuDNN documentation; any value but 0 is ignored.
    """
    return os.environ.get("NVIDIA_TF32_OVERRIDE") == "0"


def _listed(name: str, usable: Sequence[str]) -> list[str]:
    """Return the devices in a list such as "0,1"; BackendError for one that is not available."""
    parts = ["0" if part == "cuda" else part for part in name.split(",")]
    wanted = [f"cuda:{part}" if part.isdecimal() else part for part in parts]
    if CPU in wanted or not set(wanted) <= set(usable):
        raise BackendError(f"--device {name!r} is not available; available: {', '.join(usable)}")
    return wanted


def page_lock(memory: object, device: str) -> None:
    """Do nothing: copies from ordinary memory end with the call."""


def copies_end(device: str) -> Callable[[], None]:
    """Return a function that does not wait, for the same reason."""
    return lambda: None


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether a framework's error means that the device or host is out of memory."""
    if isinstance(error, MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in NO_MEMORY)
