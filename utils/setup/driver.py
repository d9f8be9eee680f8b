"""The GPU driver of this machine, asked without a framework.

Standard library only, and no syntax newer than Python 3.8: see `utils/setup/environments.py`.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

# The driver's library, by which every framework reaches an NVIDIA GPU; and AMD's device.
NVIDIA_DRIVER, AMD_DRIVER = "libcuda.so.1", Path("/dev/kfd")


def sees_driver() -> bool:
    """Return whether a driver of GPUs is installed; it may still serve none."""
    return newest_cuda() is not None or AMD_DRIVER.exists()


def newest_cuda() -> tuple[int, int] | None:
    """Return the newest CUDA, as (13, 0), that NVIDIA's driver serves; None without a driver."""
    version = ctypes.c_int(0)
    try:
        ctypes.CDLL(NVIDIA_DRIVER).cuDriverGetVersion(ctypes.byref(version))
    except (OSError, AttributeError):
        return None
    return version.value // 1000, version.value % 1000 // 10
