"""The figures of a server for Prometheus.

Before: `gate.py` and `app.py`, which count. After: /metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from utils.serve.messages import Answer

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
MEDIA_TYPE = CONTENT_TYPE_LATEST


class Metrics:
    """What has been counted since the server started."""

    def __init__(self) -> None:
        disable_created_metrics()  # the time of each first count, a line each
        self._registry = registry = CollectorRegistry()
        self._requests = Counter(
            "duet_requests", "Requests by path and status", ("path", "status"), registry=registry
        )
        self._seconds = Histogram(
            "duet_request_seconds",
            "From the head of a request to the end of its answer",
            ("path",),
            registry=registry,
            buckets=SECONDS,
        )
        self._stages = Histogram(
            "duet_stage_seconds",
            "What an answered image spent in each stage",
            ("model", "stage"),
            registry=registry,
            buckets=SECONDS,
        )
        self._batches = Histogram(
            "duet_batch_images",
            "Images that went through the network together with an answered one",
            ("model",),
            registry=registry,
            buckets=BATCHES,
        )
        self._found = Counter("duet_found", "Objects found", ("model",), registry=registry)
        self._gauges = {
            name: Gauge(f"duet_{name}", text, ("model",), registry=registry)
            for name, text in (
                ("held_requests", "Requests that wait for the answer of a model"),
                ("worker_restarts", "How often the process of a model was started again"),
                ("model_ready", "1 while a model can answer"),
            )
        }

    def watch(self, model: str, figures: Mapping[str, Callable[[], float]]) -> None:
        """Show what functions return at the time of asking.

        figures: by name: held_requests, worker_restarts, model_ready.
        """
        for name, figure in figures.items():
            self._gauges[name].labels(model).set_function(figure)

    def count_request(self, path: str, status: int, seconds: float) -> None:
        """Count an answer to a request."""
        self._requests.labels(path, status).inc()
        self._seconds.labels(path).observe(seconds)

    def count_answer(self, model: str, answer: Answer) -> None:
        """Count what a model found in an image, and how."""
        self._found.labels(model).inc(answer.count)
        self._batches.labels(model).observe(answer.batch)
        for stage, milliseconds in answer.milliseconds.items():
            self._stages.labels(model, stage).observe(milliseconds / 1e3)

    def text(self) -> bytes:
        """Return all figures as Prometheus reads them."""
        return generate_latest(self._registry)
