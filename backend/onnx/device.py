"""`contract.Device` for graphs: ONNX Runtime computes their values on the CPU."""

import functools
import threading
from contextlib import AbstractContextManager, nullcontext

import onnx
import onnxruntime

from duet.backend import checks, devices
from duet.backend.contract import CAPABILITIES
from duet.backend.cores import default_threads
from duet.backend.devices import require_cpu

page_lock, copies_end = devices.page_lock, devices.copies_end
_default_threads = functools.cache(default_threads)
_own = threading.local()  # has `threads` if set by this thread


def resolve(name: str) -> str:
    require_cpu("onnx", name)
    return checks.CPU


def describe(device: str) -> str:
    number = host_threads()
    threads = "1 thread" if number == 1 else f"{number} threads"
    return f"ONNX {onnx.__version__}, ONNX Runtime {onnxruntime.__version__}, CPU with {threads}"


def host_threads() -> int:
    return getattr(_own, "threads", _default_threads())


def set_host_threads(number: int) -> None:
    checks.thread_number(number)
    _own.threads = number


def supports(capability: str) -> bool:
    checks.known_capability(capability, CAPABILITIES)
    return False


def shapes_repeat(device: str, repeat: bool) -> AbstractContextManager[None]:
    return nullcontext()
