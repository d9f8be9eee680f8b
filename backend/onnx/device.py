"""`contract.Device` for graphs: what computes their values is ONNX Runtime on the CPU."""

from __future__ import annotations

import functools
import os
import threading

import onnx
import onnxruntime

from backend import checks
from backend.contract import CAPABILITIES
from backend.cores import cores_of_rank
from backend.devices import require_cpu
from backend.words import count

_own = threading.local()  # `threads`, where this thread has set it


def resolve(name: str) -> str:
    require_cpu("onnx", name)
    return checks.CPU


def describe(device: str) -> str:
    threads = count(host_threads(), "thread")
    return f"ONNX {onnx.__version__}, ONNX Runtime {onnxruntime.__version__}, CPU with {threads}"


def host_threads() -> int:
    return getattr(_own, "threads", _default_threads())


def set_host_threads(number: int) -> None:
    checks.thread_number(number)
    _own.threads = number


@functools.cache
def _default_threads() -> int:
    """Return as many as the other backends take: OMP_NUM_THREADS, else one a core."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return int(asked) if asked.isdecimal() and int(asked) else cores_of_rank()


def supports(capability: str) -> bool:
    checks.known_capability(capability, CAPABILITIES)
    return False
