"""The task of a new training, from its flags."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from utils.tasks.table import find_task
from utils.tasks.task import Task
from utils.weights.load import load_header


def task_of_flags(values: Mapping[str, Any]) -> Task:
    """Return the task of a new training; errors in its weights are reported when they are read.

    The training reads foreign weights again (4 MB: 0.05 s, 170 MB: 0.4 s). Kept from here on, they
    would lie in the memory of a process that starts ranks for as long as these train.
    """
    name, cfg, weights = values["task"], values["cfg"], values["weights"]
    asks_weights = weights and not name and not cfg
    return find_task(name, cfg, load_header(weights).model if asks_weights else {})
