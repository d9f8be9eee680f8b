"""Detection: boxes of objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from utils.data.loading.items import BOXES
from utils.tasks.task import CLASSIFIER_FLAGS, Task


class Detection(Task):
    """Find each object, its class and its box."""

    name = "detect"
    head = "Detect"
    model = "models/yolov5s.yaml"
    head_args = ("nc", "anchors")
    refused: ClassVar[Mapping[str, str]] = CLASSIFIER_FLAGS
    val_items = BOXES


DETECTION = Detection()
