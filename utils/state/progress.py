"""Schema of a run's progress in a state file, and the rule that ends a run.

A new entry is a `Default`, so that a state written before it existed resumes.
"""

from __future__ import annotations

from typing import NamedTuple

from duet.utils.cli.train_config import TrainConfig
from duet.utils.files.json_files import Document, complete
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


def read_progress(document: Document) -> Document:
    """Return the progress in a state file; ValueError names an invalid entry."""
    return complete(document, PROGRESS)


class EndRule(NamedTuple):
    """When a run ends: after its epochs, or before by --patience or --time.

    Attributes:
        patience: epochs without improvement; 0: no limit.
        hours: total time; 0: no limit.
    """

    epochs: int
    patience: int
    hours: float

    @classmethod
    def of(cls, config: TrainConfig) -> EndRule:
        """Return the rule of a run; without validations, nothing can improve."""
        return cls(config.epochs, 0 if config.no_val else config.patience, config.hours)

    def reason(self, epoch: int, best_epoch: int, seconds: float) -> str:
        """Return why a run ends after an epoch, for the user; "" if it continues.

        Args:
            epoch: number of finished epochs.
            best_epoch: epoch of the best fitness, from 1, the last one if equal; 0 while every
                fitness is NaN: without labels, --patience has nothing to compare.
            seconds: total time of the finished epochs.

        Patience matches the stored decisions of the public YOLOv5.
        """
        if epoch >= self.epochs:
            return f"all {count(self.epochs, 'epoch')} are done"
        if self.patience and best_epoch and epoch - best_epoch >= self.patience:
            return (
                f"{count(self.patience, 'epoch')} without improvement (--patience {self.patience})"
            )
        if self.hours and seconds >= self.hours * SECONDS_AN_HOUR:
            return f"--time {self.hours:g}: reached the limit of {self.hours:g} hours"
        return ""
