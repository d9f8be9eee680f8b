"""Whether a run ends before the last of --epochs: by --patience or by --time."""

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
        """Return the limits by a run's flags; without validations --patience has no effect."""
        return cls(0 if settings["no_val"] else settings["patience"], settings["hours"])


def why_ended(limits: Limits, epoch: int, best_epoch: int, seconds: float) -> str:
    """Return why a run ends after an epoch, for a person; "" if it goes on.

    Args:
        epoch: finished ones.
        best_epoch: from 1, the epoch of the best figure so far, of equal ones the last; 0 while no
            figure is a number: without labels, --patience has nothing to compare.
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
    """Return whether the seconds reach the hours of --time."""
    return limits.hours > 0 and seconds >= limits.hours * SECONDS_AN_HOUR
