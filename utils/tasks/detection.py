"""Detection: boxes of objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
    fitness = {"mAP_0.5": 0.1, "mAP_0.5:0.95": 0.9}

    def about(self, document: Mapping[str, Any]) -> list[str]:
        return [f"anchors in pixels: {document.get('anchors', 'unknown')}"]

    def result(
        self,
        frame: Frame,
        found: Detections,
        class_names: tuple[str, ...],
        track_ids: np.ndarray | None = None,
    ) -> Result:
        return Result(frame, found, class_names, track_ids)


DETECTION = Detection()
