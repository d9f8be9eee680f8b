"""Class names that are probably one class, written in two ways."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence


def similar_names(class_names: Sequence[str]) -> list[tuple[str, ...]]:
    """Return groups of names that differ only in case, blanks, "-", "_" or the form of letters."""
    groups: dict[str, list[str]] = {}
    for name in class_names:
        groups.setdefault(_plain(name), []).append(name)
    return [tuple(group) for group in groups.values() if len(group) > 1]


def _plain(name: str) -> str:
    folded = unicodedata.normalize("NFKC", name).casefold()
    return "".join(character for character in folded if character not in "-_ \t\n") or name
