"""Counts in words."""

from __future__ import annotations


def count(number: int, noun: str, nouns: str = "") -> str:
    """Return a number with the noun that fits it: "1 image", "2 images", "12,000 images".

    Args:
        nouns: the plural, if it is not the noun and an "s".
    """
    return f"{number:,} {noun if number == 1 else nouns or noun + 's'}"


def clock(seconds: float) -> str:
    """Return a time as minutes and seconds, "3:05", or as hours too, "1:03:05"."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
