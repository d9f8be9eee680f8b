"""Times in words. Standard library only: `utils/setup` says times before anything is installed."""

from __future__ import annotations


def clock(seconds: float) -> str:
    """Return a time as minutes and seconds, "3:05", or as hours too, "1:03:05"."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
