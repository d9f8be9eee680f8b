"""This process's memory: how much is free, and keeping what is freed for the next step.

A training step on a CPU frees and allocates hundreds of megabytes. glibc returns large blocks to
the system at once, and every page of the next block costs a page fault: 5 to 7 % of the CPU time of
a YOLOv5n step at 16 x 320 px. Decoding images has the same problem: 19 % of the time of a batch
with mosaics, 33 % without. glibc reads its environment variables for this only at process start.
"""

from collections.abc import Iterator

import psutil

from duet.backend.system import group_folders
from duet.utils.errors import UserError
from duet.utils.system.machine import configure_malloc

SMALLER_BATCHES = "use a smaller --img or --batch-size, or fewer --workers"
# Constants of glibc's malloc.h.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -3, -4
LARGEST_THRESHOLD = 32 * 2**20  # maximum accepted by glibc


def require_memory(needed: int, what: str, remedy: str = SMALLER_BATCHES) -> None:
    """Raise UserError unless this many bytes are free.

    Args:
        needed: number of bytes.
        what: user of the memory; begins the message.
        remedy: next step; ends the message.
    """
    free = free_memory()
    if needed > free:
        raise UserError(
            f"{what} need at least {needed / 2**30:.1f} GiB of memory, but only "
            f"{free / 2**30:.1f} GiB are free; {remedy}"
        )


def free_memory() -> int:
    """Return the bytes this process can still allocate, within a container's limit."""
    return max(0, min([psutil.virtual_memory().available, *_left_in_groups()]))


def _left_in_groups() -> Iterator[int]:
    """Yield the bytes left in this process's control group and its parents."""
    for folder in group_folders("memory"):
        try:
            limit = (folder / "memory.max").read_text(encoding="utf-8").strip()
            used = int((folder / "memory.current").read_text(encoding="utf-8"))
            statistics = (folder / "memory.stat").read_text(encoding="utf-8").splitlines()
        except OSError:  # also in a container that cannot see its own group
            continue
        if limit != "max":
            # Cached files count as used, but are freed on demand.
            names = "inactive_file ", "active_file "
            files = sum(int(line.split()[1]) for line in statistics if line.startswith(names))
            yield int(limit) - used + files


def keep_freed_memory() -> bool:
    """Make this process keep freed memory; return False without glibc."""
    # No separate mappings, and a heap that never shrinks.
    return configure_malloc({M_MMAP_MAX: 0, M_TRIM_THRESHOLD: -1})


def keep_freed_images() -> bool:
    """Make this process keep freed blocks below 32 MiB; return as `keep_freed_memory`.

    Larger ones, from rare huge images, are still returned: otherwise every worker would keep one.
    """
    return configure_malloc({M_MMAP_THRESHOLD: LARGEST_THRESHOLD, M_TRIM_THRESHOLD: -1})
