"""The work of a worker: settings -> a model -> answers, until the front process goes away.

Before: `__main__.py` chose the framework. After: `worker.py`.
"""

from __future__ import annotations

import logging
from pathlib import Path

import backend
from backend.checks import CPU
from models.serving.conversion import converted
from models.serving.link import Link
from models.serving.model import make_model
from models.serving.work import Work
from models.serving.worker import Worker
from utils.errors import UserError
from utils.screen.text import printable
from utils.serve.messages import Query, WorkerSettings
from utils.state.checkpoint import Checkpoint
from utils.weights.detecting import Weights, load_all_to_detect
from utils.weights.load import load_weights

log = logging.getLogger("serve")


def run_worker(settings: WorkerSettings, folder: str, link: Link) -> None:
    """Tell the front process that the model is ready, then answer requests.

    Or convert weights, tell which file they became, and return.

    Args:
        folder: for that file; "": weights are run as they are.

    Raises:
        UserError: weights, device or sizes that cannot be used.
    """
    weights = open_weights(settings, bool(folder))
    if isinstance(weights, Checkpoint) and folder:
        made = converted_for_cpu(settings, weights, Path(folder))
        if made is not None:
            link.send({"converted": str(made)})
            return
    model = make_model(settings, weights)
    with Worker(model, settings, link) as worker:
        link.send({"ready": True, "model": model.about(), "window": worker.window})
        answer_requests(worker, link)


def open_weights(settings: WorkerSettings, converts: bool) -> Weights:
    """Read weights, or load an exported file; --runtime may name what weights are converted to."""
    if converts:
        return load_weights(settings.weights)
    (weights,) = load_all_to_detect([settings.weights], settings.runtime, several=True)
    return weights


def converted_for_cpu(
    settings: WorkerSettings, checkpoint: Checkpoint, folder: Path
) -> Path | None:
    """Return the exported file of a checkpoint; None if the framework itself is to run it.

    Raises:
        UserError: --runtime names a format that cannot be had.
    """
    if not settings.runtime and backend.device.resolve(settings.device) != CPU:
        return None
    try:
        return converted(settings, checkpoint, folder)
    except UserError as error:
        if settings.runtime:
            raise
        log.warning("%s runs in %s: %s", printable(settings.weights), backend.use(), error)
        return None


def answer_requests(worker: Worker, link: Link) -> None:
    """Pass requests to a worker until the front process goes away."""
    while (frame := link.receive()) is not None:
        header = frame.header
        if "cancel" in header:
            worker.give_up(header["cancel"])
            continue
        query = Query(**header["query"])
        worker.take(Work(header["id"], frame.body, query, header["answer"], header["is_large"]))
