"""All tasks, and which one flags and weights mean."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

from utils.cli.flags import flags_of
from utils.cli.train_config import TrainConfig
from utils.errors import UserError
from utils.model_yamls import block_of, read_model
from utils.tasks.classification import CLASSIFICATION
from utils.tasks.detection import DETECTION
from utils.tasks.segmentation import SEGMENTATION
from utils.tasks.task import Task
from utils.weights.load import load_header

TASKS: dict[str, Task] = {task.name: task for task in (DETECTION, SEGMENTATION, CLASSIFICATION)}


def find_task(name: str, cfg: str, document: Mapping[str, Any]) -> Task:
    """Return the task of a training.

    Args:
        name: of --task, which decides; "" if that is not given.
        cfg: the model YAML of --cfg; "" if that is not given.
        document: the model of the weights, or of the run that goes on; empty if it has none.

    Raises:
        UserError: the YAML cannot be read.
    """
    if name:
        return TASKS[name]
    return task_of_model(read_model(cfg)[1] if cfg else document)


def task_of_flags(values: Mapping[str, Any]) -> Task:
    """Return the task of a new training; errors in its weights are reported when they are read.

    The training reads foreign weights again (4 MB: 0.05 s, 170 MB: 0.4 s). Kept from here on, they
    would lie in the memory of a process that starts ranks for as long as these train.
    """
    name, cfg, weights = values["task"], values["cfg"], values["weights"]
    asks_weights = weights and not name and not cfg
    return find_task(name, cfg, load_header(weights).model if asks_weights else {})


def complete_flags(values: Mapping[str, Any], given: Collection[str]) -> TrainConfig:
    """Return the settings of a new training: those of the flags, and else its task's.

    Raises:
        UserError: a flag that its task does not use.
    """
    task = task_of_flags(values)
    config = TrainConfig(**task.completed(values, given))
    check_flags(task, config)
    return config


def check_flags(task: Task, config: TrainConfig) -> None:
    """Raise UserError for a flag of a training that its task does not use."""
    defaults = {field.name: field.default for field in dataclasses.fields(config)}
    for other in TASKS.values():
        for field in other.own_flags:
            if field not in task.own_flags and getattr(config, field) != defaults[field]:
                raise UserError(
                    f"{flags_of(config)[field].names[0]} is for models to {other.name}, this one "
                    f"is to {task.name}; leave it out"
                )
    task.check(config)


def task_of_model(document: Mapping[str, Any]) -> Task:
    """Return the task of a model document by its last layer; detection if that names none."""
    return task_of_head(block_of(document)) or DETECTION


def task_of_head(block: Any) -> Task | None:
    """Return the task whose head has this name in model YAMLs."""
    return next((task for task in TASKS.values() if task.head == block), None)
