"""Detections as other packages hold them, those that are installed.

Before: `result.py`. After: the caller's own program.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from utils.detections import Detections
from utils.optional import import_optional

CORNERS = ("xmin", "ymin", "xmax", "ymax")
CENTRE_AND_SIZE = ("xcenter", "ycenter", "width", "height")


def as_supervision(
    detections: Detections, names: Sequence[str], track_ids: np.ndarray | None = None
) -> Any:
    """Return `supervision.Detections`.

    Args:
        names: the class name of each detection.
        track_ids: (K,) int64; None where nothing is tracked.
    """
    supervision = import_optional("supervision", "to_supervision")
    return supervision.Detections(
        xyxy=detections.boxes_xyxy,
        confidence=detections.scores,
        class_id=detections.class_index,
        tracker_id=track_ids,
        data={"class_name": np.array(names, dtype=str)},
    )


def as_data_frame(
    boxes: np.ndarray,
    detections: Detections,
    names: Sequence[str],
    columns: Sequence[str] = CORNERS,
) -> Any:
    """Return a `pandas.DataFrame` with a detection a row, as the public YOLOv5 has them.

    Args:
        boxes: (K, 4), the detections' in any format and unit.
        names: the class name of each detection.
        columns: what the four numbers of a box are called.
    """
    pandas = import_optional("pandas", "to_pandas")
    table = dict(zip(columns, boxes.astype(np.float64).T, strict=True))
    return pandas.DataFrame(
        {
            **table,
            "confidence": detections.scores.astype(np.float64),
            "class": detections.class_index,
            "name": pandas.Series(names, dtype=object),
        }
    )
