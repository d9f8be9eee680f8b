"""How much memory is free, and whether what a command needs fits into it."""

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
        needed: bytes.
        what: begins the message: what they are for.
        remedy: ends it.
    """
    free = free_memory()
    if needed > free:
        raise UserError(
            f"{what} take at least {needed / 2**30:.1f} GiB of memory, {free / 2**30:.1f} GiB are "
            f"free; {remedy}"
        )


def free_memory() -> int:
    """Return the bytes of memory that this process may still take, within a container's limit.

    Where the system does not state it, that is without end.
    """
    try:
        _, _, available = Path("/proc/meminfo").read_text().partition("MemAvailable:")
    except OSError:
        available = ""
    free = int(available.split()[0]) * 1024 if available else sys.maxsize
    return max(0, min([free, *_left_in_groups()]))


def _left_in_groups() -> Iterator[int]:
    """Yield the bytes left of each limit on this process: of its control group and all above."""
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
        except OSError:  # also of a container that does not see the path of its own group
            continue
        if limit != "max":
            # Cached files count as used, but are dropped on demand.
            names = "inactive_file ", "active_file "
            files = sum(int(line.split()[1]) for line in statistics if line.startswith(names))
            yield int(limit) - used + files
