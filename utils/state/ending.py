"""Whether a run ends before the last of --epochs: by --patience or by --time.

Before: the figures of an epoch, or a state's header. After: `models/training/loop.py` goes on or
not, and `resume.py` knows whether anything is left to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from backend.words import count

SECONDS_AN_HOUR = 3600


class Limits(NamedTuple):
    """What ends a run early; 0 of either: never."""

    patience: int  # epochs
    hours: float

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Limits:
        """Return those of a run's flags: without validations there is nothing to be patient for."""
        return cls(0 if settings["no_val"] else settings["patience"], settings["hours"])


def why_ended(limits: Limits, epoch: int, best_epoch: int, seconds: float) -> str:
    """Return why a run ends after an epoch, for a person; "" where it goes on.

    Args:
        epoch: finished ones.
        best_epoch: from 1, the last one of which none before was better; 0 while no figure was a
            number: without labels there is nothing to be patient for.
        seconds: of all finished epochs.

    Source of patience: the public YOLOv5, by its stored decisions.
    """
    if limits.patience and best_epoch and epoch - best_epoch >= limits.patience:
        waited_for = count(limits.patience, "epoch")
        return f"{waited_for} without a better one (--patience {limits.patience})"
    if is_over(limits, seconds):
        return f"--time {limits.hours:g}: the limit of {limits.hours:g} hours is reached"
    return ""


def is_over(limits: Limits, seconds: float) -> bool:
    """Return whether so many seconds are the hours of --time, or more."""
    return limits.hours > 0 and seconds >= limits.hours * SECONDS_AN_HOUR
