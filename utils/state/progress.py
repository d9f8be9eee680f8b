"""What a state says of a run beside its weights, and whether the run has ended by that.

What is added later needs a default that is true of the runs before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from duet.utils.json_files import Default, complete
from duet.utils.text import count

SECONDS_AN_HOUR = 3600
_LOSSES = ["box", "objectness", "classification"]
_COLUMNS = [
    "epoch", "train/box_loss", "train/obj_loss", "train/cls_loss",
    "metrics/precision", "metrics/recall", "metrics/mAP_0.5", "metrics/mAP_0.5:0.95",
    "val/box_loss", "val/obj_loss", "val/cls_loss", "x/lr0", "x/lr1", "x/lr2", "seconds/epoch",
    "seconds/data_wait", "seconds/to_device", "seconds/forward", "seconds/loss",
    "seconds/backward", "seconds/optimizer", "seconds/ema", "seconds/validation",
]  # fmt: skip
_SAMPLES = {"images": int, "sha256": str, "polygons": Default(str, "")}
EARLIER = {  # what only earlier versions wrote
    "micro_batches": Default([int], []),  # of each rank, lowered when memory ran out; 0: no limit
    "class_scores": Default([float], []),  # of the last validation
}
PROGRESS = {
    **EARLIER,
    "is_best": Default(bool, False),
    # Finished epochs when the best one was; None where it is unknown.
    "best_epoch": Default(int, None),
    "finite_updates": Default(int, 0),
    "scores_before_epoch": Default({str: [float]}, {}),  # none without --image-weights
    "loss_names": Default([str], _LOSSES),  # of the losses in `watch` and of a validation's
    "watch": {
        **dict.fromkeys(("skipped", "in_a_row"), Default(int, 0)),
        **dict.fromkeys(("batches", "lost"), int),
        "first_losses": [[float]],
        "sums": [float],
        "window": Default([dict], []),  # of earlier versions
    },
    # What it had learnt at the last update: the balance of levels, say.
    "loss": Default({str: [float]}, {}),
    "seconds": {"total": float, str: float},  # by stage
    "work": {"batches": int, "sha1": str},
    "columns": Default([str], _COLUMNS),  # of `results`
    "results": [[str]],
    "data": {"train": _SAMPLES, "val": _SAMPLES},
    "world_size": int,
}


def read_progress(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the progress of a state's file, complete; ValueError names what does not fit."""
    return complete(document, PROGRESS)


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
