"""Weights -> models that are ready to answer requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
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
from utils.cli.serve_config import ModelSource, ServeConfig
from utils.data.image.letterbox import FILL
from utils.errors import UserError
from utils.weights.detecting import ExportedWeights, Weights, load_to_detect

MOST_DETECTIONS = {"segment": 1_000}  # by task: each mask is drawn, packed and outlined
MOST_BOXES = 5_000


@dataclass(frozen=True)
class ServedModel:
    """A model, and how requests set it.

    Attributes:
        most: images that go through the network together, at most.
        about: its description for /v1/model.
    """

    name: str
    detector: ImageDetector
    class_names: tuple[str, ...]
    most: int
    about: dict[str, Any]

    def configured(self, query: Mapping[str, Any]) -> ImageDetector:
        """Return the detector with the settings of a request, of the same network.

        Raises:
            UserError: one that the model cannot honour.
        """
        most = MOST_DETECTIONS.get(self.about["task"], MOST_BOXES)
        if query.get("max_det", 1) > most:
            raise UserError(f"max_det {query['max_det']}; at most {most:,} are accepted")
        config = call_config(len(self.class_names), **{**self.about["defaults"], **query})
        self.detector.predictor.head.task.check(config)
        return configured(self.detector, replace(config, image_size=self.detector.image_size))


def load_model(source: ModelSource, config: ServeConfig) -> ServedModel:
    """Load a model and run it once, so that the first request does not wait for set-up.

    Raises:
        UserError: weights, a device or settings that cannot be used.
    """
    shared = {field.name for field in fields(DetectConfig)} & {one.name for one in fields(config)}
    settings = {name: getattr(config, name) for name in shared} | {"weights": (source.weights,)}
    weights = load_to_detect(source.weights, config.runtime, several=True)
    detector = make_detector(DetectConfig(**settings), [weights])
    most = batch_size_of(weights, detector.device, config.max_batch)
    side = detector.image_size
    detector.predictor.require_memory((most, 3, side, side), trains=False)
    detector.detect([np.full((side, side, 3), FILL, np.uint8)])
    class_names = class_names_of(weights, detector.predictor.head.num_classes)
    runtime = weights.runtime.name if isinstance(weights, ExportedWeights) else None
    about = {
        "name": source.name,
        "task": detector.predictor.head.task.name,
        "class_names": class_names,
        "image_size": side,
        "runs_in": runtime or backend.device.describe(detector.device),
        "max_batch": most,
        "weights": Path(source.weights).name,
        "defaults": {
            "conf": config.confidence_threshold,
            "iou": config.iou_threshold,
            "max_det": config.max_detections,
        },
    }
    return ServedModel(source.name, detector, class_names, most, about)


def batch_size_of(weights: Weights, device: str, most: int) -> int:
    """Return how many images to give the network at once, at most --max-batch.

    On a CPU each lane takes one: of YOLOv5n at 640x480 px ONNX Runtime needs 51 ms of processor
    time an image, and 54 ms in batches of four.
    """
    if isinstance(weights, ExportedWeights):
        metadata = weights.runtime.metadata
        if not metadata.dynamic:
            return min(most, metadata.batch_size)
        return 1 if weights.side_by_side else most
    return 1 if device == CPU else most
