"""Determine a training's task, check its flags, and adapt its model document."""

import dataclasses
from collections.abc import Collection

from duet.utils.cli.flags import FlagValues, flags_of
from duet.utils.cli.hyperparameters import (
    DEFAULT_HYPERPARAMETERS,
    Hyperparameters,
    read_hyperparameters,
)
from duet.utils.cli.train_config import TrainConfig
from duet.utils.errors import UserError
from duet.utils.files.json_files import Document
from duet.utils.files.model_yamls import block_of, read_model
from duet.utils.tasks import DETECTION, TASKS, Task, task_of_head
from duet.utils.weights.load import stored_model


def find_task(name: str, cfg: str, document: Document) -> Task:
    """Return the task of a training.

    Args:
        name: --task, which takes precedence; "" if not given.
        cfg: --cfg, a model YAML; "" if not given.
        document: model of the weights or of the resumed run; empty if none.

    Raises:
        UserError: the YAML cannot be read.
    """
    if name:
        return TASKS[name]
    return task_of_model(read_model(cfg)[1] if cfg else document)


def task_of_flags(values: FlagValues) -> Task:
    """Return the task of a new training; errors in its weights are reported when loaded.

    The training reads foreign weights again (4 MB: 0.05 s, 170 MB: 0.4 s). Keeping them would
    occupy the memory of a process that starts ranks for the whole training.
    """
    name, cfg, weights = values["task"], values["cfg"], values["weights"]
    asks_weights = weights and not name and not cfg
    return find_task(name, cfg, stored_model(weights) if asks_weights else {})


def complete_flags(values: FlagValues, given: Collection[str]) -> TrainConfig:
    """Return the settings of a new training, with the task's defaults for flags not given.

    Raises:
        UserError: a flag that does not apply to the task.
    """
    task = task_of_flags(values)
    config = TrainConfig(**task.completed(values, given))
    check_flags(task, config)
    return config


def task_of_model(document: Document) -> Task:
    """Return a model document's task, given by its last layer; detection if unknown."""
    return task_of_head(block_of(document)) or DETECTION


def check_flags(task: Task, config: TrainConfig) -> None:
    defaults = {field.name: field.default for field in dataclasses.fields(config)}
    for other in TASKS.values():
        for field in other.own_flags:
            if field not in task.own_flags and getattr(config, field) != defaults[field]:
                raise UserError(
                    f"{flags_of(config)[field].names[0]} applies only to the task {other.name}, "
                    f"not to {task.name}; leave it out"
                )
    config.refuse(task.refused)


def without_effect(task: Task, hyp: Hyperparameters) -> list[str]:
    """Return `unused` hyper-parameters that differ from the task's default file."""
    usual = read_hyperparameters(task.defaults.get("hyp", DEFAULT_HYPERPARAMETERS))
    return [name for name in task.unused if getattr(hyp, name) != getattr(usual, name)]


def adopted(task: Task, document: Document, cutoff: int = 0) -> Document:
    """Return a model document with the task's head; unchanged if it already has it.

    Args:
        document: a model of any task, checked by `models/graph.py`.
        cutoff: --cutoff.

    Raises:
        UserError: the model has too few layers, or lacks what the head needs.
    """
    if block_of(document) == task.head and not cutoff:
        return document
    if task.takes_levels:
        return _with_levels(document, task)
    return _cut_off(document, task, cutoff)


def _cut_off(document: Document, task: Task, cutoff: int) -> Document:
    """Return a document with the first layers and a head on the last one's map.

    cutoff: number of layers including the head; 0 for the length of the backbone.
    """
    layers = [*document["backbone"], *document["head"]]
    number = cutoff or len(document["backbone"])
    if not 2 <= number <= len(layers):
        raise UserError(
            f"--cutoff {number}; the model has {len(layers)} layers; accepted: a number from 2 to "
            f"{len(layers)}"
        )
    own = {name: value for name, value in document.items() if name != "anchors"}
    head = [-1, 1, task.head, list(task.head_args)]
    return {**own, "backbone": layers[: number - 1], "head": [head]}


def _with_levels(document: Document, task: Task) -> Document:
    """Return a document whose last layer is the task's head, on the input maps of its own."""
    needs_anchors = "anchors" in task.head_args
    if not task_of_model(document).takes_levels or needs_anchors and "anchors" not in document:
        lacking = "anchors" if needs_anchors else "levels of a detector"
        raise UserError(
            f"--task {task.name}: the model has no {lacking}; add --cfg with a model that "
            f"has, such as {task.model}: its layers that match take the weights"
        )
    *layers, last = document["head"]
    kept = {name: x for name, x in document.items() if needs_anchors or name != "anchors"}
    return {**kept, "head": [*layers, [last[0], 1, task.head, list(task.head_args)]]}
