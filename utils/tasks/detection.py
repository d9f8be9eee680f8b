"""Detection: boxes of objects."""

from __future__ import annotations

from utils.data.loading.items import BOXES
from utils.tasks.task import Task


class Detection(Task):
    """Find each object, its class and its box."""

    name = "detect"
    head = "Detect"
    model = "models/yolov5s.yaml"
    val_items = BOXES


DETECTION = Detection()
