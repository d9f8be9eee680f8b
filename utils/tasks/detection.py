"""Detection: boxes of objects."""

from __future__ import annotations

import numpy as np

from utils.data.loading.items import BOXES
from utils.detections import Detections
from utils.media.frame import Frame
from utils.results.result import Result
from utils.tasks.task import Task


class Detection(Task):
    """Find each object, its class and its box."""

    name = "detect"
    head = "Detect"
    model = "models/yolov5s.yaml"
    head_args = ("nc", "anchors")
    val_items = BOXES

    def result(
        self,
        frame: Frame,
        found: Detections,
        class_names: tuple[str, ...],
        track_ids: np.ndarray | None = None,
    ) -> Result:
        return Result(frame, found, class_names, track_ids)


DETECTION = Detection()
