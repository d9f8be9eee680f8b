"""What is fixed in an exported file, compared with the flags: its size, and the NMS in it."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from backend.processes import this_process
from backend.words import count
from models.detector import require_image_size
from models.inference.protocol import Predictor
from utils.cli.detect_config import DetectConfig
from utils.cli.detection_config import DetectionConfig
from utils.errors import UserError
from utils.screen.text import printable
from utils.weights.detecting import ExportedWeights, Weights

log = logging.getLogger("models")


def input_size(config: DetectionConfig, predictor: Predictor) -> int:
    """Return the long side of what the network takes: that of --img, or of a fixed size.

    Raises:
        UserError: --img is no multiple of the stride, or neither its default nor the fixed size.
    """
    if predictor.fixed_size is None:
        require_image_size(config.image_size, predictor.stride, trains=False)
        return config.image_size
    height, width = predictor.fixed_size
    longest, asked = max(height, width), config.image_size
    if asked not in (longest, DetectConfig.image_size):
        raise UserError(
            f"--img {asked}: the exported file takes only images of {height} x {width} px (height "
            "x width); leave --img out, or export it with --dynamic"
        )
    return longest


def tell_limits(config: DetectionConfig, weights: Sequence[Weights]) -> None:
    """Log what a file cannot do that the flags say, on the first rank."""
    files = [one for one in weights if isinstance(one, ExportedWeights)]
    if this_process().is_main:
        for file in files:
            _tell_batch(config, file)
            _tell_suppression(config, file)


def _tell_batch(config: DetectionConfig, file: ExportedWeights) -> None:
    metadata = file.runtime.metadata
    if not metadata.dynamic and metadata.batch_size > config.batch_size:
        log.warning(
            "%s always computes %s per call; --batch-size %d uses them all",
            printable(file.path), count(metadata.batch_size, "image"), metadata.batch_size,
        )  # fmt: skip


def _tell_suppression(config: DetectionConfig, file: ExportedWeights) -> None:
    """Log the flags that ask for more than the NMS in a file lets through."""
    within = file.runtime.metadata.suppression
    asked = {
        "--conf": (config.confidence_threshold, "confidence_threshold", False),
        "--iou": (config.iou_threshold, "iou_threshold", True),
        "--max-det": (config.max_detections, "max_detections", True),
    }
    beyond = [
        f"{flag} {value:g} (in the file {within[name]:g})"
        for flag, (value, name, above) in asked.items()
        if name in within and (value > within[name] if above else value < within[name])
    ]
    if beyond:
        log.warning(
            "%s has NMS in it, which has removed what these flags would keep: %s",
            printable(file.path), ", ".join(beyond),
        )  # fmt: skip
