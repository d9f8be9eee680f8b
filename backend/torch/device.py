"""Devices for PyTorch; documented in `contract.Device`."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from duet.backend import checks, devices
from duet.backend.checks import CPU
from duet.backend.contract import CAPABILITIES
from duet.backend.devices import own_device, peak_during, present_device, tf32_is_overridden

FIRST_MAJOR_WITH_TF32 = 8
is_out_of_memory = devices.is_out_of_memory


def resolve(name: str) -> str:
    return own_device(name, _usable())


def present(device: str) -> str:
    """Return a device that `resolve` returned; BackendError if it is not available."""
    return present_device(device, _usable())


def synchronize(device: str) -> None:
    if device != CPU:
        torch.cuda.synchronize(device)


def peak_memory(run: Callable[[], object], device: str) -> int:
    if device == CPU:
        return peak_during(run)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    run()
    torch.cuda.synchronize(device)
    return int(torch.cuda.max_memory_reserved(device))


def used_memory(device: str) -> int | None:
    return None if device == CPU else int(torch.cuda.max_memory_reserved(device))


def free_memory(device: str) -> int | None:
    return None if device == CPU else int(torch.cuda.mem_get_info(device)[0])


def host_bytes(shape: tuple[int, ...], device: str) -> np.ndarray:
    if device == CPU:
        return np.empty(shape, np.uint8)
    return torch.empty(shape, dtype=torch.uint8, pin_memory=True).numpy()


def mark(device: str) -> Any:
    if device == CPU:
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
    return f"PyTorch {torch.__version__}, {torch.cuda.get_device_name(device)}"


def rounds_to_tf32(device: str) -> bool:
    if device == CPU:
        return False
    if torch.cuda.get_device_capability(device)[0] < FIRST_MAJOR_WITH_TF32:
        return False
    return bool(torch.backends.cudnn.allow_tf32) and not tf32_is_overridden()


def compute_exactly(device: str) -> None:
    if device != CPU:
        # PyTorch's older interface: all versions have it, and reading it raises once the newer one
        # (`fp32_precision`) has been set for convolutions only.
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cuda.matmul.allow_tf32 = False


@contextmanager
def shapes_repeat(device: str, repeat: bool) -> Iterator[None]:
    cudnn = torch.backends.cudnn
    before = cudnn.benchmark
    try:
        cudnn.benchmark = repeat if device != CPU else before
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
    return capability != "cuda" or torch.cuda.is_available()


@functools.cache
def _usable() -> list[str]:
    """Return the usable devices, preferred first."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return [*(f"cuda:{index}" for index in range(count)), CPU]
