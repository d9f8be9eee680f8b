"""The work of detect.py: weights and sources -> frames, what is found in them, and files.

Before: `detect.py` read flags and weights and chose the framework.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import cv2

import backend
from models.inference.image_detector import ImageDetector
from models.inference.predictor import make_predictor, suppression_settings
from utils.cli.detect_config import DetectConfig
from utils.drawing.annotate import draw_boxes
from utils.files.atomic import atomic_file
from utils.media.source import Source
from utils.results.result import Result
from utils.screen.text import say
from utils.state.checkpoint import Checkpoint
from utils.state.folder import create_run_folder

log = logging.getLogger("detect")


def run_detection(
    config: DetectConfig, sources: Sequence[Source], weights: Sequence[Checkpoint]
) -> None:
    """Detect in every frame of the sources and write what was found."""
    device = backend.device.resolve(config.device)
    predictor = make_predictor(weights, device, config.augment, config.half)
    suppression = suppression_settings(config, multi_label=False)
    detector = ImageDetector(predictor, device, config.image_size, suppression)
    log.info(backend.device.describe(device))
    class_names = weights[0].header.class_names
    folder = create_run_folder(config.project, config.name, config.exist_ok)
    for number, source in enumerate(sources):
        for frame in source.frames():
            (detections,) = detector.detect([frame.image])
            result = Result(frame, detections, class_names)
            labels = [
                f"{name} {score:.2f}"
                for name, score in zip(result.names, result.scores.tolist(), strict=True)
            ]
            drawn = draw_boxes(frame.image, result.boxes_xyxy, result.class_index, labels)
            _, encoded = cv2.imencode(".jpg", cv2.cvtColor(drawn, cv2.COLOR_RGB2BGR))
            with atomic_file(folder / f"{number}.jpg") as file:
                file.write(encoded.tobytes())
    say(f"results in {folder}")
