"""What a task is to everything that runs before, and beside, a framework.

Its other half is a head (`models/heads/base.py`), which names its task. Nothing else asks which
task it serves: it asks the task, or the head.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from utils.cli.train_config import TrainConfig
from utils.data.loading.items import Items
from utils.data.sources.samples import SampleTable


class Task:
    """What a model is trained for.

    Attributes:
        name: as --task has it.
        head: the name of its head in model YAMLs.
        model: the model YAML of a training that names none, from the project's folder.
        defaults: fields of `TrainConfig` whose default is another one for this task.
        val_items: make the images of a validation without a loss.
        fitness: the weights of the figures, by the names that `Head.figures` has, whose sum
            decides which weights, and which hyper-parameters, are best.
    """

    name: ClassVar[str]
    head: ClassVar[str]
    model: ClassVar[str]
    defaults: ClassVar[Mapping[str, Any]] = {}
    val_items: ClassVar[Items]
    fitness: ClassVar[Mapping[str, float]] = {}

    def about(self, document: Mapping[str, Any]) -> list[str]:
        """Return what is told of a model that nothing has checked yet, one line a subject."""
        return []

    def completed(self, values: Mapping[str, Any], given: Collection[str]) -> dict[str, Any]:
        """Return values of flags, with the task's defaults for those that were not given."""
        own = {name: value for name, value in self.defaults.items() if name not in given}
        return {**values, **own}

    def check(self, config: TrainConfig) -> None:
        """Raise UserError for a flag of a training that means nothing to the task."""

    def check_samples(self, samples: SampleTable, name: str) -> None:
        """Raise DatasetError for samples whose labels are not those of the task.

        name: of the dataset.
        """

    def items(self, config: TrainConfig) -> Items:
        """Return what makes the images and targets of a training and of its validations."""
        return self.val_items
