"""`contract.Device` for graphs: what computes their values is ONNX Runtime on the CPU."""

from __future__ import annotations

import onnx
import onnxruntime

from backend import checks
from backend.contract import CAPABILITIES
from backend.devices import own_device


def resolve(name: str) -> str:
    return own_device(name, [checks.CPU])


def describe(device: str) -> str:
    return f"ONNX {onnx.__version__}, ONNX Runtime {onnxruntime.__version__}, CPU"


def host_threads() -> int:
    return 1


def set_host_threads(number: int) -> None:
    checks.thread_number(number)


def supports(capability: str) -> bool:
    checks.known_capability(capability, CAPABILITIES)
    return False
