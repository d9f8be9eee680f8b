"""Count the collectives that this process has begun; imports no framework.

All ranks begin the same ones in the same order: among ranks that wait for each other, those that
have begun more wait for those that have begun fewer.
"""

from __future__ import annotations

_begun = 0


def begin() -> None:
    """Count one; called before the framework is."""
    global _begun
    _begun += 1


def begun() -> int:
    """Return how many this process has begun since its start."""
    return _begun
