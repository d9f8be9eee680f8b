"""Detections in the types of other packages, if these are installed.

Before: `result.py`. After: the caller's own program.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from utils.detections import Detections, Segmentations
from utils.optional import import_optional

CORNERS = ("xmin", "ymin", "xmax", "ymax")
CENTRE_AND_SIZE = ("xcenter", "ycenter", "width", "height")


def as_supervision(
    detections: Detections | Segmentations,
    names: Sequence[str],
    track_ids: np.ndarray | None = None,
    masks: np.ndarray | None = None,
) -> Any:
    """Return `supervision.Detections`.

    Args:
        names: the class name of each detection.
        track_ids: (K,) int64; None if nothing is tracked.
        masks: (K, H, W) bool; None if there are none.
    """
    supervision = import_optional("supervision", "to_supervision")
    return supervision.Detections(
        xyxy=detections.boxes_xyxy,
        mask=masks,
        confidence=detections.scores,
        class_id=detections.class_index,
        tracker_id=track_ids,
        data={"class_name": np.array(names, dtype=str)},
    )


def as_data_frame(
    boxes: np.ndarray,
    detections: Detections | Segmentations,
    names: Sequence[str],
    columns: Sequence[str] = CORNERS,
) -> Any:
    """Return a `pandas.DataFrame` with one detection per row, as the public YOLOv5 has them.

    Args:
        boxes: (K, 4), the detections' in any format and unit.
        names: the class name of each detection.
        columns: what the four numbers of a box are called.
    """
    numbers = boxes.astype(np.float64)
    table = {name: numbers[:, index] for index, name in enumerate(columns)}
    return as_class_frame(detections.scores, detections.class_index, names, table)


def as_classifications(class_index: np.ndarray, scores: np.ndarray) -> Any:
    """Return `supervision.Classifications` of class numbers and their scores, (K,) each."""
    supervision = import_optional("supervision", "to_supervision")
    return supervision.Classifications(class_id=class_index, confidence=scores)


def as_class_frame(
    scores: np.ndarray,
    class_index: np.ndarray,
    names: Sequence[str],
    columns: Mapping[str, np.ndarray] | None = None,
) -> Any:
    """Return a `pandas.DataFrame`: the columns given, then confidence, class and name, (K,) each"""
    pandas = import_optional("pandas", "to_pandas")
    return pandas.DataFrame(
        {
            **(columns or {}),
            "confidence": scores.astype(np.float64),
            "class": class_index,
            "name": pandas.Series(names, dtype=object),
        }
    )
