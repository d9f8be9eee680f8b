"""Devices for OneFlow; documented in `contract.Device`."""

import functools
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import oneflow

from duet.backend import checks, devices
from duet.backend.checks import CPU
from duet.backend.contract import CAPABILITIES
from duet.backend.devices import missing_device, own_device, tf32_is_overridden
from duet.backend.system import peak_during

# The 0.9.0 wheel has machine code for compute capabilities 6.0 to 8.6 and no PTX.
LAST_SUPPORTED_MAJOR = 8
FIRST_MAJOR_WITH_TF32 = 8
is_out_of_memory = devices.is_out_of_memory
page_lock, copies_end = devices.page_lock, devices.copies_end  # 0.9 has no page-locked memory


def resolve(name: str) -> str:
    return own_device(name, _usable())


def present(device: str) -> str:
    """Return a device that `resolve` returned; BackendError if it is not available."""
    if device not in _usable():
        raise missing_device(device, _usable())
    return device


def synchronize(device: str) -> None:
    # CPU operations are queued too.
    oneflow._oneflow_internal.eager.Sync()
    if device != CPU:
        oneflow.cuda.synchronize(device)


def peak_memory(run: Callable[[], object], device: str) -> int:
    def run_all() -> None:
        run()
        synchronize(device)

    if device == CPU:
        return peak_during(run_all)
    oneflow.cuda.empty_cache()
    run_all()
    return _used_memory(device)  # OneFlow never frees memory by itself: this is the peak


def used_memory(device: str) -> int | None:
    return None if device == CPU else _used_memory(device)


def free_memory(device: str) -> int | None:
    if device == CPU:
        return None
    total = oneflow.cuda.get_device_properties(device).total_memory
    return int(total) - _used_memory(device)


def _used_memory(device: str) -> int:
    """Return a GPU's used bytes, including other processes': 0.9 reports nothing finer."""
    oneflow.cuda.set_device(device)
    return int(oneflow._oneflow_internal.GetCUDAMemoryUsed() * 2**20)


def mark(device: str) -> float:
    # OneFlow 0.9 has no events: the only way to know is to wait.
    synchronize(device)
    return time.perf_counter()


def seconds_between(start: float, end: float) -> float:
    return end - start


def describe(device: str) -> str:
    if device == CPU:
        return f"OneFlow {oneflow.__version__}, CPU"
    return f"OneFlow {oneflow.__version__}, {oneflow.cuda.get_device_name(device)}"


def rounds_to_tf32(device: str) -> bool:
    if device == CPU:
        return False
    # 0.9 uses cuDNN's default for convolutions, TF32. The documented variable
    # ONEFLOW_EP_CUDA_ENABLE_TF32_EXECUTION affects only matrix products.
    has_tf32 = oneflow.cuda.get_device_capability(device)[0] >= FIRST_MAJOR_WITH_TF32
    return has_tf32 and not tf32_is_overridden()


def compute_exactly(device: str) -> None:
    """Do nothing: 0.9 has no switch for convolutions, and a CPU computes exactly."""


def shapes_repeat(device: str, repeat: bool) -> AbstractContextManager[None]:
    return nullcontext()


def host_threads() -> int:
    return 1


def set_host_threads(number: int) -> None:
    checks.thread_number(number)


def supports(capability: str) -> bool:
    checks.known_capability(capability, CAPABILITIES)
    return capability == "cuda" and _usable() != [CPU]


@functools.cache
def _usable() -> list[str]:
    """Return the usable devices, preferred first."""
    # Querying a device's capability without a driver would abort the process.
    count = oneflow.cuda.device_count() if oneflow.cuda.is_available() else 0
    fit = [
        f"cuda:{index}"
        for index in range(count)
        if oneflow.cuda.get_device_capability(index)[0] <= LAST_SUPPORTED_MAJOR
    ]
    return [*fit, CPU]
