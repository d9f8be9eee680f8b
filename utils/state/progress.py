"""Schema of a run's progress in a state file, and the limits that end a run.

A new entry is a `Default`, so that a state written before it existed resumes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from duet.utils.cli.train_config import TrainConfig
from duet.utils.files.json_files import complete
from duet.utils.text import count

SECONDS_AN_HOUR = 3600
_SAMPLES = {"images": int, "sha256": str, "polygons": str}
PROGRESS = {
    "is_best": bool,
    "best_epoch": int,  # from 1; 0: none
    "finite_updates": int,
    "scores_before_epoch": {str: [float]},  # for --image-weights
    "loss_names": [str],  # for `watch` and validations
    "watch": {
        **dict.fromkeys(("batches", "lost", "skipped", "in_a_row"), int),
        "first_losses": [[float]],
        "sums": [float],
    },
    "seconds": {"total": float, str: float},  # per stage
    "work": {"batches": int, "sha1": str},
    "columns": [str],  # names for `results`
    "results": [[str]],
    "data": {"train": _SAMPLES, "val": _SAMPLES},
    "world_size": int,
}


def read_progress(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the progress in a state file; ValueError names an invalid entry."""
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
