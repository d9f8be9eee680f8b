"""What a training starts from; all of it is read before a framework is imported.

Before: `train.py` reads flags, data and weights. After: `models/training/job.py` builds and runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from utils.cli.hyperparameters import Hyperparameters
from utils.cli.train_config import TrainConfig
from utils.data.loading.items import BOXES, Items
from utils.data.loading.recipe import BatchRecipe
from utils.data.sources.samples import Sample
from utils.processes.suspend import StopRequests
from utils.processes.world import ALONE, World
from utils.state.checkpoint import Checkpoint
from utils.state.equal_data import describe_samples
from utils.state.lock import RunLock
from utils.state.resume import ResumePoint


@dataclass(frozen=True)
class Job:
    """The settings of a training, its data, and the state from which it starts or goes on."""

    config: TrainConfig
    hyp: Hyperparameters
    class_names: tuple[str, ...]
    train_samples: Sequence[Sample]
    val_samples: Sequence[Sample]
    start: Checkpoint | None  # the weights to start with
    point: ResumePoint | None  # the state to go on from
    stop: StopRequests
    lock: RunLock  # of the run's folder; rank 0 takes it
    world: World = ALONE
    items: Items = BOXES  # of the task

    @cached_property
    def data(self) -> Mapping[str, Any]:
        """Number and hash of the samples, by split."""
        return {
            "train": describe_samples(self.train_samples),
            "val": describe_samples(self.val_samples),
        }


def batch_recipe(config: TrainConfig) -> BatchRecipe:
    """Return which samples form a batch, and in which shape, by the flags."""
    return BatchRecipe(
        config.rect, config.quad, config.image_weights, config.repeat_factor, config.mosaic_window
    )
