"""How many loader processes the cores of this process are for."""

from __future__ import annotations

from backend.cores import cores_of_rank


def loader_workers(asked: int) -> int:
    """Return how many loader processes to start: those asked for, at most one a core."""
    return min(asked, cores_of_rank())
