"""`contract.Device` where there is a CPU alone."""

from __future__ import annotations

import numpy as np

from backend import checks
from backend.contract import CAPABILITIES
from backend.devices import own_device


def resolve(name: str) -> str:
    return own_device(name, [checks.CPU])


def describe(device: str) -> str:
    return f"NumPy {np.__version__}, CPU"


def host_threads() -> int:
    return 1


def set_host_threads(number: int) -> None:
    checks.thread_number(number)


def supports(capability: str) -> bool:
    checks.known_capability(capability, CAPABILITIES)
    return False
