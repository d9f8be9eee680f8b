"""What was found, as the lines of the text files that the public YOLOv5 writes.

Before: `result.py`. After: `run_files.py`, or a caller's own file. As there, the lowest score
comes first.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

import numpy as np

from utils.boxes import xyxy_to_cxcywh
from utils.detections import Detections
from utils.screen.text import printable


def label_lines(
    detections: Detections,
    image_size: tuple[int, int],
    track_ids: np.ndarray | None = None,
    scores: bool = False,
) -> list[str]:
    """Return a YOLO label a detection: class, centre and size, then the score and track id.

    Args:
        detections: in pixels of the image; lines have fractions of its width and height.
        image_size: (height, width), pixels.
        track_ids: (K,) int64; None where nothing is tracked.
        scores: whether lines have them.
    """
    height, width = image_size
    boxes_cxcywh = xyxy_to_cxcywh(detections.boxes_xyxy.astype(np.float64))
    columns: list[np.ndarray] = [detections.class_index]
    columns += list((boxes_cxcywh / (width, height, width, height)).T)
    columns += [detections.scores] if scores else []
    columns += [] if track_ids is None else [track_ids]
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [" ".join(map(_number, row)) for row in rows][::-1]


def _number(value: float) -> str:
    """Return a whole number in full, another with six significant digits."""
    return str(value) if isinstance(value, int) else f"{value:.6g}"


def table_lines(
    image_name: str,
    names: Sequence[str],
    scores: np.ndarray,
    track_ids: np.ndarray | None = None,
) -> str:
    """Return lines of CSV, one a detection: image, class name, score, track id if there are any.

    Args:
        names: the class name of each detection.
        scores: (K,)
        track_ids: (K,) int64; None where nothing is tracked.
    """
    columns: list[Sequence[object]] = [names, [f"{score:.2f}" for score in scores.tolist()]]
    columns += [] if track_ids is None else [track_ids.tolist()]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for name, *others in reversed(list(zip(*columns, strict=True))):
        writer.writerow([printable(image_name), printable(str(name)), *others])
    return text.getvalue()
