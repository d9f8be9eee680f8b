"""Weights -> a model that is ready to answer requests.

Before: `job.py` chose what runs them. After: `worker.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import backend
from backend.checks import CPU
from models.inference.api import configured
from models.inference.image_detector import ImageDetector
from models.inference.job import make_detector
from models.inference.predictor import class_names_of
from utils.cli.call_config import call_config
from utils.cli.detect_config import DetectConfig
from utils.data.image.resizing import FILL
from utils.serve.messages import Query, WorkerSettings
from utils.weights.detecting import ExportedWeights, Weights


@dataclass(frozen=True)
class ServedModel:
    """A model, and how it is asked.

    Attributes:
        runs_in: what runs it, with its version and device.
        most: images that go through the network together, at most.
    """

    name: str
    detector: ImageDetector
    class_names: tuple[str, ...]
    runs_in: str
    most: int

    def asked(self, query: Query) -> ImageDetector:
        """Return the detector with the settings of a request, of the same network.

        Raises:
            UserError: one that the model cannot honour.
        """
        config = call_config(len(self.class_names), **vars(query))
        self.detector.predictor.head.task.check_detection(config)
        config = replace(config, image_size=self.detector.image_size)
        return configured(self.detector, config)

    def about(self) -> dict[str, Any]:
        """Return what /v1/model tells."""
        return {
            "name": self.name,
            "task": self.detector.predictor.head.task.name,
            "class_names": list(self.class_names),
            "image_size": self.detector.image_size,
            "runs_in": self.runs_in,
            "max_batch": self.most,
        }


def make_model(settings: WorkerSettings, weights: Weights) -> ServedModel:
    """Build a model and run it once, so that the first request does not wait for set-up.

    Raises:
        UserError: weights, device or sizes that cannot be used.
    """
    config = detect_config(settings)
    device = backend.device.resolve(config.device)
    most = batch_of(weights, device, settings.max_batch)
    detector = make_detector(replace(config, batch_size=most), [weights])
    side = detector.image_size
    detector.predictor.require_memory((most, 3, side, side), trains=False)
    detector.detect([np.full((side, side, 3), FILL, np.uint8)])
    names = class_names_of(weights, detector.predictor.head.num_classes)
    return ServedModel(settings.name, detector, names, what_runs(weights, device), most)


def what_runs(weights: Weights, device: str) -> str:
    """Return a runtime or a framework, with its version and device."""
    if isinstance(weights, ExportedWeights):
        return weights.runtime.name
    text: str = backend.device.describe(device)
    return text


def detect_config(settings: WorkerSettings) -> DetectConfig:
    """Return the settings as the flags of detect.py, which have the same meaning there."""
    return DetectConfig(
        weights=(settings.weights,),
        image_size=settings.image_size or DetectConfig.image_size,
        is_size_given=settings.image_size is not None,
        device=settings.device,
        runtime=settings.runtime,
        half=settings.half,
        max_pixels=settings.max_pixels,
    )


def batch_of(weights: Weights, device: str, most: int) -> int:
    """Return how many images to give the network at once: no more than are faster so.

    On a CPU each lane takes one: of YOLOv5n at 640x480 px ONNX Runtime needs 51 ms of processor
    time an image, and 54 ms in batches of four.

    Args:
        most: of --max-batch.
    """
    if isinstance(weights, ExportedWeights):
        metadata = weights.runtime.metadata
        if not metadata.dynamic:
            return min(most, metadata.batch_size)
        return 1 if weights.side_by_side else most
    return 1 if device == CPU else most
