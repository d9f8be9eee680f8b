"""Check that a command's needs fit in the free memory."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from duet.utils.errors import UserError

SMALLER_BATCHES = "use a smaller --img or --batch-size, or fewer --workers"
_LIMITS = Path("/sys/fs/cgroup")
_OWN_GROUP = Path("/proc/self/cgroup")


def require_memory(needed: int, what: str, remedy: str = SMALLER_BATCHES) -> None:
    """Raise UserError unless this many bytes are free.

    Args:
        needed: number of bytes.
        what: what needs them; begins the message.
        remedy: what to do; ends the message.
    """
    free = free_memory()
    if needed > free:
        raise UserError(
            f"{what} need at least {needed / 2**30:.1f} GiB of memory, but only "
            f"{free / 2**30:.1f} GiB are free; {remedy}"
        )


def free_memory() -> int:
    """Return the bytes this process can still allocate, within a container's limit.

    Unlimited if the system does not report it.
    """
    try:
        _, _, available = Path("/proc/meminfo").read_text().partition("MemAvailable:")
    except OSError:
        available = ""
    free = int(available.split()[0]) * 1024 if available else sys.maxsize
    return max(0, min([free, *_left_in_groups()]))


def _left_in_groups() -> Iterator[int]:
    """Yield the bytes left in this process's control group and its parents."""
    try:
        lines = _OWN_GROUP.read_text().splitlines()
    except OSError:
        lines = []
    group = _LIMITS / next((line[4:] for line in lines if line.startswith("0::/")), "")
    for folder in (group, *group.parents):
        try:
            limit = (folder / "memory.max").read_text().strip()
            used = int((folder / "memory.current").read_text())
            statistics = (folder / "memory.stat").read_text().splitlines()
        except OSError:  # also in a container that cannot see its own group
            continue
        if limit != "max":
            # Cached files count as used, but are freed on demand.
            names = "inactive_file ", "active_file "
            files = sum(int(line.split()[1]) for line in statistics if line.startswith(names))
            yield int(limit) - used + files
