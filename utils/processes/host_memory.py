"""Keep freed memory for the next step instead of handing it back to the system.

A training step on a CPU frees and allocates hundreds of megabytes. glibc returns large blocks to
the system at once, and each page of the next block costs a page fault: 5 to 7 % of the processor
time of a YOLOv5n step at 16 x 320 px. glibc's environment variables for this are read only at the
start of a process.
"""

from __future__ import annotations

import ctypes
import platform

# Of glibc's malloc.h.
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4


def keep_freed_memory() -> bool:
    """Make this process keep memory that it frees; False if the C library is not glibc."""
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    # No block has a mapping of its own, and the heap never shrinks.
    return bool(mallopt(M_MMAP_MAX, 0)) and bool(mallopt(M_TRIM_THRESHOLD, -1))
