"""The models of a server by name, each with its worker and the requests that it holds.

Before: `service.py`, which starts the workers. After: `app.py`, which asks them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from utils.errors import brief
from utils.serve.failures import RequestError
from utils.serve.line import Line
from utils.serve.messages import Query
from utils.serve.worker_process import WorkerProcess


@dataclass(frozen=True, eq=False)
class ServedModel:
    """One model."""

    worker: WorkerProcess
    line: Line

    @property
    def name(self) -> str:
        """What a request calls it."""
        return self.worker.name

    def about(self, defaults: Query) -> dict[str, Any]:
        """Return what /v1/model says about it; only its name if it has not started yet.

        defaults: what a request without a query asks for.
        """
        thresholds = {"conf": defaults.conf, "iou": defaults.iou, "max_det": defaults.max_det}
        told = {**self.worker.model, "name": self.name}
        return {**told, "ready": self.worker.is_ready, "defaults": thresholds}


class ServedModels:
    """All of them, the default one first.

    Attributes:
        is_ending: no new request is taken.
    """

    def __init__(self, models: Sequence[ServedModel]) -> None:
        self.all = tuple(models)
        self._by_name = {model.name: model for model in models}
        self.is_ending = False

    @property
    def is_ready(self) -> bool:
        """Whether every model can answer, and the server does not end."""
        return not self.is_ending and all(model.worker.is_ready for model in self.all)

    def find(self, name: str | None) -> ServedModel:
        """Return a model that can take a request; None means the default one.

        Raises:
            RequestError: no model has this name, it has not started yet, or the server ends.
        """
        if self.is_ending:
            text = "the server is ending; send the request to another one, or again later"
            raise RequestError(503, "ending", text, {"Retry-After": "5", "Connection": "close"})
        model = self.all[0] if name is None else self._by_name.get(name)
        if model is None:
            known = ", ".join(map(brief, self._by_name))
            text = f"model {brief(name)}: the server has no model of this name; accepted: {known}"
            raise RequestError(404, "unknown_model", text)
        if not model.worker.model:
            text = f"the model {brief(model.name)} is being started; try again in some seconds"
            raise RequestError(503, "starting", text, {"Retry-After": "2"})
        return model
