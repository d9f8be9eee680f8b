"""The figures of a server for Prometheus, in the client library's own registry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prometheus_client import Counter, Gauge, Histogram

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)

REQUESTS = Counter("duet_requests", "Requests", ("path", "status"))
REQUEST_SECONDS = Histogram("duet_request_seconds", "Head to answer", ("path",), buckets=SECONDS)
STAGE_SECONDS = Histogram(
    "duet_stage_seconds", "Time of an image in a stage", ("model", "stage"), buckets=SECONDS
)
BATCH_IMAGES = Histogram("duet_batch_images", "Images of a batch", ("model",), buckets=BATCHES)
FOUND = Counter("duet_found", "Objects found", ("model",))
HELD = Gauge("duet_held_requests", "Requests that wait for an answer", ("model",))
RESTARTS = Counter("duet_worker_restarts", "Starts of the model process after the first")
READY = Gauge("duet_ready", "1 while the models can answer")


def count_answer(model: str, answer: Mapping[str, Any]) -> None:
    """Count what a model found in an image.

    answer: with count, batch and milliseconds, as the model process sends it.
    """
    FOUND.labels(model).inc(answer["count"])
    BATCH_IMAGES.labels(model).observe(answer["batch"])
    for stage, milliseconds in answer["milliseconds"].items():
        STAGE_SECONDS.labels(model, stage).observe(milliseconds / 1e3)
