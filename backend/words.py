"""Counts in words: "1 image", "2 images"."""

from __future__ import annotations


def count(number: int, noun: str, nouns: str = "") -> str:
    """Return a number with the noun that fits it, as "12,000 images".

    Args:
        nouns: the plural, if it is not the noun and an "s".
    """
    return f"{number:,} {noun if number == 1 else nouns or noun + 's'}"
