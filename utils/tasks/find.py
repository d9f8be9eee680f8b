"""Which task a training is for, which flags it does not use, and the model document it trains."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from duet.utils.cli.flags import flags_of
from duet.utils.cli.hyperparameters import (
    DEFAULT_HYPERPARAMETERS,
    Hyperparameters,
    read_hyperparameters,
)
from duet.utils.cli.train_config import TrainConfig
from duet.utils.errors import UserError
from duet.utils.model_yamls import block_of, read_model, scale_depth, scale_width, shipped_model
from duet.utils.tasks.table import DETECTION, TASKS, Task, task_of_head

SIZES = "nsmlx"  # of the public detectors


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


def task_of_flags(
    values: Mapping[str, Any], stored_model: Callable[[str], Mapping[str, Any]]
) -> Task:
    """Return the task of a new training; errors in its weights are reported when they are read.

    The training reads foreign weights again (4 MB: 0.05 s, 170 MB: 0.4 s). Kept from here on, they
    would lie in the memory of a process that starts ranks for as long as these train.

    stored_model: reads the model document of a weights file.
    """
    name, cfg, weights = values["task"], values["cfg"], values["weights"]
    asks_weights = weights and not name and not cfg
    return find_task(name, cfg, stored_model(weights) if asks_weights else {})


def complete_flags(
    values: Mapping[str, Any],
    given: Collection[str],
    stored_model: Callable[[str], Mapping[str, Any]],
) -> TrainConfig:
    """Return the settings of a new training: those of the flags, and else its task's.

    Raises:
        UserError: a flag that its task does not use.
    """
    task = task_of_flags(values, stored_model)
    config = TrainConfig(**task.completed(values, given))
    check_flags(task, config)
    return config


def task_of_model(document: Mapping[str, Any]) -> Task:
    """Return the task of a model document by its last layer; detection if that names none."""
    return task_of_head(block_of(document)) or DETECTION


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
    config.refuse(task.refused)


def without_effect(task: Task, hyp: Hyperparameters) -> list[str]:
    """Return the names of `unused` hyper-parameters that somebody set: those of other values than
    in the file that the task has where none is given.
    """
    usual = read_hyperparameters(task.defaults.get("hyp", DEFAULT_HYPERPARAMETERS))
    return [name for name in task.unused if getattr(hyp, name) != getattr(usual, name)]


def adopted(task: Task, document: Mapping[str, Any], cutoff: int = 0) -> Mapping[str, Any]:
    """Return a model document with the task's head: the one given, if it has it.

    Args:
        document: of a model of any task, checked by `models/graph.py`.
        cutoff: of --cutoff.

    Raises:
        UserError: the layers of that model do not suffice.
    """
    if block_of(document) == task.head and not cutoff:
        return document
    if task.takes_levels:
        return _with_levels(document, task)
    return _cut_off(document, task, cutoff)


def _cut_off(document: Mapping[str, Any], task: Task, cutoff: int) -> Mapping[str, Any]:
    """Return a document of the first layers and a head of the last one's map.

    cutoff: how many layers there are with the head; 0 for as many as the backbone has.
    """
    layers = [*document["backbone"], *document["head"]]
    number = cutoff or len(document["backbone"])
    if not 2 <= number <= len(layers):
        raise UserError(
            f"--cutoff {number}; the model has {len(layers)} layers: a number from 2 to "
            f"{len(layers)} is needed"
        )
    own = {name: value for name, value in document.items() if name != "anchors"}
    head = [-1, 1, task.head, list(task.head_args)]
    return {**own, "backbone": layers[: number - 1], "head": [head]}


def _with_levels(document: Mapping[str, Any], task: Task) -> Mapping[str, Any]:
    """Return a document whose last layer is a head of several maps.

    Args:
        document: of a model whose head takes several maps; or of a part of a public detector,
            whose other layers, or anchors, are then those of the public one.

    Raises:
        UserError: it is neither.
    """
    own = task_of_model(document)
    if not own.takes_levels or "anchors" in task.head_args and "anchors" not in document:
        document = _public_detector(document)
    *layers, last = document["head"]
    kept = {name: value for name, value in document.items() if name != "anchors"}
    document = document if "anchors" in task.head_args else kept
    return {**document, "head": [*layers, [last[0], 1, task.head, list(task.head_args)]]}


def _public_detector(part: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the public detector whose first layers are those of a document, except its last."""
    layers = _scaled_layers(part)[:-1]
    taken = ("anchors", "backbone", "head", "depth_multiple", "width_multiple")
    for size in SIZES:
        _, public = read_model(str(shipped_model(f"yolov5{size}")))
        if _scaled_layers(public)[: len(layers)] == layers:
            return {**part, **{name: public[name] for name in taken}}
    raise UserError(
        "--task: the model has no anchors, and its layers are those of no public detector that "
        "has; leave --task out for the task of the model, or give the model to train with --cfg, "
        "as --cfg yolov5n.yaml"
    )


def _scaled_layers(document: Mapping[str, Any]) -> list[Sequence[Any]]:
    """Return the lines of all layers with the multiples worked in; public classifiers, which come
    without a YAML, have no others.
    """
    depth, width = document["depth_multiple"], document["width_multiple"]
    lines: list[Sequence[Any]] = []
    for source, number, block, args in [*document["backbone"], *document["head"]]:
        channels = [scale_width(x, width) if type(x) is int else x for x in args[:1]]
        lines.append([source, scale_depth(number, depth), block, [*channels, *args[1:]]])
    return lines
