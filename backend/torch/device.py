"""Devices for PyTorch; documented in `contract.Device`."""

import functools
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import psutil
import torch
from torch import Tensor

from duet.backend import checks, devices
from duet.backend.checks import CPU
from duet.backend.contract import CAPABILITIES
from duet.backend.devices import MPS, missing_device, own_device, tf32_is_overridden
from duet.backend.system import peak_during

FIRST_MAJOR_WITH_TF32 = 8
# Bytes. Smaller copies take less than 0.1 ms at 12 GB/s, too little to hide with three more host
# calls. And below 1 MiB PyTorch allocates parts of blocks, which each stream has of its own.
LARGE_COPY = 2**20
is_out_of_memory = devices.is_out_of_memory

_page_locked: dict[int, int] = {}  # first address -> end
_APPLE = [MPS] if torch.backends.mps.is_available() else []  # a compiled function cannot ask


def resolve(name: str) -> str:
    return own_device(name, _usable())


def present(device: str) -> str:
    """Return a device that `resolve` returned; BackendError if it is not available."""
    if device not in _usable():
        raise missing_device(device, _usable())
    return device


def has_streams(device: str | torch.device) -> bool:
    """Return whether it is a GPU of CUDA: page-locked memory, streams, graphs and TF32.

    Beside the CPU there is an Apple GPU, which has none of them, and no float64.
    """
    return torch.device(device).type == "cuda"


def synchronize(device: str) -> None:
    if has_streams(device):
        torch.cuda.synchronize(device)
    elif device == MPS:
        torch.mps.synchronize()


def peak_memory(run: Callable[[], object], device: str) -> int:
    if device == MPS:
        run()
        return int(torch.mps.driver_allocated_memory())
    if device == CPU:
        return peak_during(run)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    run()
    torch.cuda.synchronize(device)
    return int(torch.cuda.max_memory_reserved(device))


def used_memory(device: str) -> int | None:
    if device == MPS:
        return int(torch.mps.driver_allocated_memory())
    return None if device == CPU else int(torch.cuda.max_memory_reserved(device))


def free_memory(device: str) -> int | None:
    if device == MPS:  # the host's
        return int(psutil.virtual_memory().available)
    return None if device == CPU else int(torch.cuda.mem_get_info(device)[0])


def page_lock(memory: np.ndarray, device: str) -> None:
    if not has_streams(device):
        return
    start, runtime = memory.ctypes.data, torch.cuda.cudart()
    with torch.cuda.device(device):
        if int(runtime.cudaHostRegister(start, memory.nbytes, 0)):
            # Some systems cannot; CUDA then reports the same error once more, by its next kernel.
            with suppress(RuntimeError):
                torch.zeros(1, device=device)
            return
    _page_locked[start] = start + memory.nbytes
    weakref.finalize(memory, _unlock, start).atexit = False


def _unlock(start: int) -> None:
    del _page_locked[start]
    torch.cuda.cudart().cudaHostUnregister(start)


def is_page_locked(array: np.ndarray) -> bool:
    """Return whether it is an array without gaps in memory of `page_lock`."""
    start = array.__array_interface__["data"][0]
    return array.flags.c_contiguous and any(
        first <= start and start + array.nbytes <= end for first, end in _page_locked.items()
    )


def copy_to_gpu(array: np.ndarray, dtype: torch.dtype, device: str) -> Tensor:
    """Copy from page-locked memory, without waiting for work queued on the device."""
    if is_page_locked(array):
        return _copied_beside(torch.from_numpy(array), device)
    on_host = torch.empty(array.shape, dtype=dtype, pin_memory=True)  # used again once it was read
    on_host.numpy()[...] = array
    if array.nbytes < LARGE_COPY:
        return on_host.to(device, non_blocking=True)
    return _copied_beside(on_host, device)


def _copied_beside(on_host: Tensor, device: str) -> Tensor:
    """Copy a page-locked tensor while the device runs earlier work.

    The current stream waits for the copy, on the device. The memory belongs to the copy stream, so
    the copy does not wait for work that still reads it: `record_stream` keeps it until the current
    stream has finished what was queued when the tensor was freed.
    """
    current, beside = torch.cuda.current_stream(device), copy_stream(device)
    with torch.cuda.stream(beside):
        copied = on_host.to(device, non_blocking=True)
    current.wait_stream(beside)
    copied.record_stream(current)
    return copied


def copy_from_gpu(x: Tensor) -> Callable[[], np.ndarray]:
    """Start a copy to page-locked memory; return a function that waits for it alone."""
    on_host = torch.empty(x.shape, dtype=x.dtype, pin_memory=True)
    on_host.copy_(x, non_blocking=True)
    arrived = torch.cuda.Event()
    arrived.record(torch.cuda.current_stream(x.device))

    def read() -> np.ndarray:
        arrived.synchronize()
        return on_host.numpy()

    return read


def copies_end(device: str) -> Callable[[], None]:
    if not has_streams(device):
        return devices.copies_end(device)
    end = torch.cuda.Event()
    end.record(copy_stream(device))
    return end.synchronize


@functools.cache
def copy_stream(device: str) -> torch.cuda.Stream:
    """Return a GPU's stream for large copies, created once."""
    return torch.cuda.Stream(device)


def mark(device: str) -> Any:
    if not has_streams(device):
        synchronize(device)
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record(torch.cuda.current_stream(device))
    return event


def seconds_between(start: Any, end: Any) -> float:
    if isinstance(end, float):
        return end - start
    end.synchronize()
    return start.elapsed_time(end) / 1000


def describe(device: str) -> str:
    if device == CPU:
        number = torch.get_num_threads()
        threads = "1 thread" if number == 1 else f"{number} threads"
        return f"PyTorch {torch.__version__}, CPU with {threads}"
    name = "Apple GPU" if device == MPS else torch.cuda.get_device_name(device)
    return f"PyTorch {torch.__version__}, {name}"


def rounds_to_tf32(device: str) -> bool:
    if not has_streams(device):
        return False
    if torch.cuda.get_device_capability(device)[0] < FIRST_MAJOR_WITH_TF32:
        return False
    return bool(torch.backends.cudnn.allow_tf32) and not tf32_is_overridden()


def compute_exactly(device: str) -> None:
    if has_streams(device):
        # PyTorch's older interface: all versions have it, and reading it raises once the newer one
        # (`fp32_precision`) has been set for convolutions only.
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cuda.matmul.allow_tf32 = False


@contextmanager
def shapes_repeat(device: str, repeat: bool) -> Iterator[None]:
    cudnn = torch.backends.cudnn
    before = cudnn.benchmark
    try:
        cudnn.benchmark = repeat if has_streams(device) else before
        yield
    finally:
        cudnn.benchmark = before


def host_threads() -> int:
    return torch.get_num_threads()


def set_host_threads(number: int) -> None:
    checks.thread_number(number)
    torch.set_num_threads(number)


def supports(capability: str) -> bool:
    checks.known_capability(capability, CAPABILITIES)
    return capability not in ("cuda", "copies_beside") or torch.cuda.is_available()


@functools.cache
def _usable() -> list[str]:
    """Return the usable devices, preferred first."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return [*(f"cuda:{index}" for index in range(count)), *_APPLE, CPU]
