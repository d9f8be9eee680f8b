"""Schema of a run's progress in a state file, and the limits that end a run.

New entries need a default that is correct for earlier runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from duet.utils.cli.train_config import TrainConfig
from duet.utils.files.json_files import Default, complete
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
EARLIER = {  # written only by earlier versions
    "micro_batches": Default([int], []),  # per rank, lowered when memory ran out; 0: no limit
    "class_scores": Default([float], []),  # from the last validation
    "loss": Default({str: [float]}, {}),  # always empty
}
PROGRESS = {
    **EARLIER,
    "is_best": Default(bool, False),
    # Number of the best epoch, from 1; None if unknown.
    "best_epoch": Default(int, None),
    "finite_updates": Default(int, 0),
    "scores_before_epoch": Default({str: [float]}, {}),  # for --image-weights
    "loss_names": Default([str], _LOSSES),  # for `watch` and validations
    "watch": {
        **dict.fromkeys(("skipped", "in_a_row"), Default(int, 0)),
        **dict.fromkeys(("batches", "lost"), int),
        "first_losses": [[float]],
        "sums": [float],
        "window": Default([dict], []),  # written by earlier versions
    },
    "seconds": {"total": float, str: float},  # per stage
    "work": {"batches": int, "sha1": str},
    "columns": Default([str], _COLUMNS),  # names for `results`
    "results": [[str]],
    "data": {"train": _SAMPLES, "val": _SAMPLES},
    "world_size": int,
}


def read_progress(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the progress in a state file, with defaults; ValueError names an invalid entry."""
    return complete(document, PROGRESS)


def why_ended(config: TrainConfig, epoch: int, best_epoch: int, seconds: float) -> str:
    """Return a message about why a run ends after an epoch; "" if it continues.

    Args:
        config: flags; --patience is ignored without validations.
        epoch: number of finished epochs.
        best_epoch: epoch of the best fitness, from 1, the last one if equal; 0 while every fitness
            is NaN: without labels, --patience has nothing to compare.
        seconds: total time of the finished epochs.

    Patience matches the stored decisions of the public YOLOv5.
    """
    patience = 0 if config.no_val else config.patience
    if patience and best_epoch and epoch - best_epoch >= patience:
        return f"{count(patience, 'epoch')} without improvement (--patience {patience})"
    if is_over(config.hours, seconds):
        return f"--time {config.hours:g}: reached the limit of {config.hours:g} hours"
    return ""


def is_over(hours: float, seconds: float) -> bool:
    """Return whether the time limit of --time is reached; 0: no limit."""
    return hours > 0 and seconds >= hours * SECONDS_AN_HOUR
