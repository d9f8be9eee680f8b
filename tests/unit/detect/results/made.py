"""Results made by hand."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from duet.utils.data.masks.runs import runs_of_mask
from duet.utils.detect.media.source import Frame
from duet.utils.detect.results.result import ClassResult, MaskResult, Result
from duet.utils.geometry.detections import Classification, Detections, Ragged, Segmentations
from tests.coco_reference import rows_as_detections

CLASS_NAMES = ("person", "traffic light", "cat")


def make_detections(*rows: tuple[float, ...]) -> Detections:
    return rows_as_detections(rows)


def make_result(
    source: Path | str,
    *rows: tuple[float, ...],
    size: tuple[int, int] = (40, 60),
    number: int | None = None,
    class_names: tuple[str, ...] = CLASS_NAMES,
    track_ids: np.ndarray | None = None,
) -> Result:
    """A result with detections as `make_detections` takes them, in a grey image."""
    seconds = None if number is None else number / 8
    frame = Frame(np.full((*size, 3), 90, np.uint8), source, number, seconds)
    return Result(frame, make_detections(*rows), class_names, track_ids)


def make_mask_result(
    source: Path | str,
    masks: np.ndarray,
    *rows: tuple[float, ...],
    number: int | None = None,
    track_ids: np.ndarray | None = None,
) -> MaskResult:
    """A result with masks (K, H, W) bool and their `make_detections` rows, in a grey image."""
    boxes = make_result(source, *rows, size=masks.shape[1:], number=number, track_ids=track_ids)
    runs = Ragged.of([runs_of_mask(mask) for mask in masks], np.uint32)
    return MaskResult(boxes.frame, Segmentations(*boxes.found, runs), CLASS_NAMES, track_ids)


def make_class_result(
    source: Path | str,
    probabilities: Sequence[float],
    size: tuple[int, int] = (40, 60),
    class_names: tuple[str, ...] = CLASS_NAMES,
) -> ClassResult:
    """A result with the probability of each class, of a grey image."""
    scores = np.array([probabilities], np.float32)
    return ClassResult(make_result(source, size=size).frame, Classification(scores), class_names)
