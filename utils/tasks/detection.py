"""Detection: boxes of objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from utils.data.loading.items import BOXES
from utils.tasks.task import Task


class Detection(Task):
    """Find each object, its class and its box."""

    name = "detect"
    head = "Detect"
    model = "models/yolov5s.yaml"
    val_items = BOXES
    fitness = {"mAP_0.5": 0.1, "mAP_0.5:0.95": 0.9}

    def about(self, document: Mapping[str, Any]) -> list[str]:
        return [f"anchors in pixels: {document.get('anchors', 'unknown')}"]


DETECTION = Detection()
