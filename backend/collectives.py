"""Count the collectives that this process has begun; imports no framework.

All ranks begin the same collectives in the same order. When ranks wait for each other, those that
have begun more wait for those that have begun fewer.
"""

from __future__ import annotations

_begun = 0


def begin() -> None:
    """Count one collective; call this before the framework's function."""
    global _begun
    _begun += 1


def begun() -> int:
    """Return how many collectives this process has begun since its start."""
    return _begun
