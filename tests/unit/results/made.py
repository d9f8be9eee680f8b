"""Results made by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from utils.detections import Detections
from utils.media.frame import Frame
from utils.results.result import Result

CLASS_NAMES = ("person", "traffic light", "cat")


def make_detections(*rows: tuple[float, ...]) -> Detections:
    """Detections of rows (left, top, right, bottom, score, class)."""
    table = np.array(rows, np.float64).reshape(-1, 6)
    boxes, scores = table[:, :4].astype(np.float32), table[:, 4].astype(np.float32)
    return Detections(boxes, scores, table[:, 5].astype(np.int64))


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
