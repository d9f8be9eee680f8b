"""A file without a name that the processes of a machine open together.

Before: one of them makes it and tells the others where. After: `image_cache.py`.

No process, however it ends, leaves such a file behind.
"""

from __future__ import annotations

import os

import numpy as np


def tell_file(descriptor: int) -> np.ndarray:
    """Return (4,) int64 by which processes of the same user and machine find this open file."""
    status = os.fstat(descriptor)
    identity = np.array([status.st_dev, status.st_ino], np.uint64).view(np.int64)
    return np.concatenate([np.array([os.getpid(), descriptor], np.int64), identity])


def open_told_file(told: np.ndarray) -> int:
    """Return a new descriptor of the file that `tell_file` told of.

    Raises:
        OSError: it is not there, or may not be opened.
    """
    process_id, number = told[:2].tolist()
    descriptor = os.open(f"/proc/{process_id}/fd/{number}", os.O_RDWR)
    if not np.array_equal(tell_file(descriptor)[2:], told[2:]):
        os.close(descriptor)
        raise FileNotFoundError(f"process {process_id} has another file there")
    return descriptor
