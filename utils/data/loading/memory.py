"""How much memory is free, and whether what a command needs fits into it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from utils.errors import UserError

SMALLER_BATCHES = "use a smaller --img or --batch-size, or fewer --workers"
_LIMITS = Path("/sys/fs/cgroup")
_MEMORY = Path("/proc/meminfo")
_OWN_GROUPS = Path("/proc/self/cgroup")


def require_memory(needed: int, what: str, remedy: str = SMALLER_BATCHES) -> None:
    """Raise UserError unless this many bytes are free.

    Args:
        needed: bytes.
        what: begins the message: what they are for.
        remedy: ends it.
    """
    free = free_memory()
    if free is not None and needed > free:
        raise UserError(
            f"{what} take at least {needed / 2**30:.1f} GiB of memory, {free / 2**30:.1f} GiB are "
            f"free; {remedy}"
        )


def free_memory() -> int | None:
    """Return the bytes of memory that this process may still take, within a container's limit.

    None where the system does not state it.
    """
    try:
        lines = _MEMORY.read_text().splitlines()
        (available,) = (int(x.split()[1]) * 1024 for x in lines if x.startswith("MemAvailable:"))
    except (OSError, ValueError):
        return None
    return max(0, min([available, *_left_in_groups()]))


def _left_in_groups() -> Iterator[int]:
    """Yield the bytes left of each limit on this process: of its control group and all above."""
    try:
        lines = _OWN_GROUPS.read_text().splitlines()
    except OSError:
        lines = []
    for line in ["0::/", *lines]:  # the first: a container may not see the path of its own group
        _, controllers, path = line.split(":", 2)
        group = Path(path.lstrip("/"))
        for folder in (group, *group.parents):
            if not controllers:  # version 2
                yield from _left(_LIMITS / folder, "max", "current", "")
            elif "memory" in controllers.split(","):
                yield from _left(
                    _LIMITS / "memory" / folder, "limit_in_bytes", "usage_in_bytes", "total_"
                )


def _left(folder: Path, limit_name: str, used_name: str, prefix: str) -> Iterator[int]:
    """Yield the bytes left of one group's limit; nothing if it has no limit."""
    try:
        limit = (folder / f"memory.{limit_name}").read_text().strip()
        used = int((folder / f"memory.{used_name}").read_text())
        statistics = (folder / "memory.stat").read_text().splitlines()
    except OSError:
        return
    if limit != "max":
        # Cached files count as used, but are dropped on demand.
        names = f"{prefix}inactive_file ", f"{prefix}active_file "
        files = sum(int(line.split()[1]) for line in statistics if line.startswith(names))
        yield int(limit) - used + files
