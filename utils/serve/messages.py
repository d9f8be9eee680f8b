"""The messages between the front process and the worker of a model, and its errors.

Before: an HTTP request. After: `worker_process.py` sends it, `models/serving` answers.
"""

from __future__ import annotations

from dataclasses import dataclass

from utils.cli.detect_config import DetectConfig
from utils.errors import UserError, WorkerError

# Decoded, 50 MB. A worker deals with larger ones one after another, so that what is in memory is
# bounded by the number of requests under way, whatever --max-pixels allows.
LARGE_PIXELS = 1 << 24
MEDIA_TYPES = {"json": "application/json", "jpeg": "image/jpeg", "png": "image/png"}


@dataclass(frozen=True)
class WorkerSettings:
    """One model of a server, and how its worker runs it.

    Attributes:
        name: of the model, in requests.
        weights: a file that detect.py takes, by its absolute path.
        image_size: as --img; None if it was left out.
        backend, device, runtime, half, max_pixels: as the flags of detect.py.
        max_batch: images that go through the network together, at most.
        max_wait_ms: how long an image waits for others, at most.
        timeout: seconds without any answer after which a worker that owes one counts as hanging.
        start_timeout: seconds that a worker may take to be ready.
    """

    name: str
    weights: str
    image_size: int | None = None
    backend: str | None = None
    device: str = ""
    runtime: str = ""
    half: bool = False
    max_pixels: int = DetectConfig.max_pixels
    max_batch: int = 8
    max_wait_ms: float = 5.0
    timeout: float = 60.0
    start_timeout: float = 300.0


@dataclass(frozen=True)
class Query:
    """What counts as found in an image; as the flags of detect.py, with their defaults.

    Attributes:
        classes: only these classes, by number; None: all.
        agnostic: a box removes boxes of all classes.
    """

    conf: float = DetectConfig.confidence_threshold
    iou: float = DetectConfig.iou_threshold
    max_det: int = DetectConfig.max_detections
    classes: tuple[int, ...] | None = None
    agnostic: bool = False


@dataclass(frozen=True)
class Answer:
    """The answer for one image.

    Attributes:
        body: JSON in UTF-8, or an image file, ready to send.
        media_type: of the body: one of `MEDIA_TYPES`.
        milliseconds: by stage: wait, decode, network, finish, total.
        count: how much was found.
        batch: images that went through the network together, this one among them.
    """

    body: bytes
    media_type: str
    milliseconds: dict[str, float]
    count: int
    batch: int = 1


class BadImageError(UserError):
    """An image that cannot be read; the text is that of detect.py."""


class WorkerLostError(WorkerError):
    """The worker of a model died or hung, and could not answer a request in a second life either"""
