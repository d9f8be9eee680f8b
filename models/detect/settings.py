"""Build a detector on a device from flags, or from the options of one call."""

import copy
import dataclasses
import logging
import math
from collections.abc import Sequence
from typing import Any, NoReturn

from duet import backend
from duet.backend.checks import CPU
from duet.models.inference.heatmap import layer_number
from duet.models.inference.image_detector import ImageDetector
from duet.models.inference.predictor import (
    augmented,
    class_names_of,
    input_size,
    make_predictor,
)
from duet.utils.cli.run_config import known_classes
from duet.utils.detect.config import DetectConfig
from duet.utils.detect.pipeline.threads import MOST_THREADS
from duet.utils.detect.tracker import LOWEST_SCORE
from duet.utils.geometry.detections import SuppressionSettings
from duet.utils.weights.load import ExportedWeights, Weights

SURELY_FIT = 1 << 25  # image values; below, skip the memory check: 2 ms, as long as a small network
LANES_ON_GPU = 2  # one batch is copied and queued while the other one's results are waited for

log = logging.getLogger("detect")


class NotCopied:
    """Has a network on a device and locks; copying or pickling it names the way."""

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} is neither copied nor pickled: threads may share it, and "
            "each process loads its own"
        )


def detector_of(weights: Sequence[Weights], device: str, half: bool = False) -> ImageDetector:
    """Build the models on a device named as for --device; calls adjust it with `configured`."""
    device = backend.device.resolve(device)
    predictor = make_predictor(weights, device, half=half)
    image_size = input_size(None, predictor, weights)
    class_names = class_names_of(weights[0], predictor.head.num_classes)
    return ImageDetector(
        predictor, device, image_size, SuppressionSettings(), class_names=class_names
    )


def make_detector(
    config: DetectConfig, weights: Sequence[Weights], several: bool = True
) -> ImageDetector:
    """Build the models on the flags' device; several: batches may be computed concurrently."""
    device = backend.device.resolve(config.device)
    log.info(backend.device.describe(device))
    predictor = make_predictor(weights, device, config.augment, config.half)
    config.refuse(predictor.head.task.refused)
    image_size = input_size(config.image_size, predictor, weights)
    class_names = class_names_of(weights[0], predictor.head.num_classes)
    classes = known_classes("--classes", config.classes, class_names)
    config = dataclasses.replace(config, classes=classes)
    lanes = num_lanes(device, weights) if several else 1
    settings = _suppression(config)
    detector = ImageDetector(
        predictor, device, image_size, settings, config.tiling, lanes, class_names
    )
    return visualizing(detector, config.visualize)


def num_lanes(device: str, weights: Sequence[Weights] = ()) -> int:
    file_lanes = [one.lanes for one in weights if isinstance(one, ExportedWeights)]
    if file_lanes:
        return min(file_lanes)
    if device == CPU:
        return min(backend.device.host_threads(), MOST_THREADS)
    return LANES_ON_GPU if backend.device.supports("copies_beside") else 1


def configured(detector: ImageDetector, config: DetectConfig, **suppression: Any) -> ImageDetector:
    """Return a detector with the options of a call, sharing the network and its lock.

    suppression: overrides for `SuppressionSettings` fields. UserError for too little memory.
    """
    detector = copy.copy(detector)
    detector.image_size = config.image_size or detector.image_size
    detector.tiling = config.tiling
    detector.suppression = dataclasses.replace(_suppression(config), **suppression)
    shape = (config.batch_size, 3, detector.image_size, detector.image_size)
    if detector.device == CPU and math.prod(shape) > SURELY_FIT:
        detector.predictor.require_memory(shape, trains=False)
    if config.augment:
        detector.predictor = augmented(detector.predictor)
    return visualizing(detector, config.visualize)


def visualizing(detector: ImageDetector, layer: int | None) -> ImageDetector:
    """Let a detector make the heat maps of --visualize; UserError for a layer it does not have."""
    detector.visualized = None if layer is None else layer_number(detector.predictor, layer)
    return detector


def _suppression(config: DetectConfig) -> SuppressionSettings:
    settings = config.suppression(multi_label=False)
    if not config.track:
        return settings
    lowest = min(config.confidence_threshold, LOWEST_SCORE)
    return dataclasses.replace(settings, confidence_threshold=lowest)
