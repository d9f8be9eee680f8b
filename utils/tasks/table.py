"""All tasks, and which one flags and weights mean."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from utils.errors import UserError
from utils.files.models import read_model
from utils.tasks.detection import DETECTION
from utils.tasks.task import Task

TASKS: dict[str, Task] = {task.name: task for task in (DETECTION,)}


def find_task(name: str, cfg: str, document: Mapping[str, Any]) -> Task:
    """Return the task of a training.

    Args:
        name: of --task; "" where that is not given.
        cfg: the model YAML of --cfg, which decides; "" where that is not given.
        document: the model of the weights, or of the run that goes on; empty where it tells none.

    Raises:
        UserError: --task and --cfg are for different tasks, or the YAML cannot be read.
    """
    if not cfg:
        return TASKS[name] if name else task_of_model(document)
    path, model = read_model(cfg)
    task = task_of_model(model)
    if name and task.name != name:
        raise UserError(f"--task {name}: --cfg {path} is a model to {task.name}; leave one out")
    return task


def task_of_model(document: Mapping[str, Any]) -> Task:
    """Return the task of a model document by its last layer; detection where that tells none."""
    try:
        block = document["head"][-1][2]
    except (KeyError, IndexError, TypeError):
        return DETECTION  # `models/graph.py` says what is wrong with it
    return task_of_head(block) or DETECTION


def task_of_head(block: Any) -> Task | None:
    """Return the task whose head has this name in model YAMLs."""
    return next((task for task in TASKS.values() if task.head == block), None)


def task_of_figures(names: Collection[str]) -> Task | None:
    """Return the task whose fitness is made of figures that are among these."""
    return next((t for t in TASKS.values() if t.fitness and t.fitness.keys() <= set(names)), None)
