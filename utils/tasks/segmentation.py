"""Instance segmentation: boxes of objects, and their pixels."""

from __future__ import annotations

from utils.data.loading.items import BOXES
from utils.tasks.task import Task


class Segmentation(Task):
    """Find each object, its class, its box and its mask."""

    name = "segment"
    head = "Segment"
    model = "models/yolov5s-seg.yaml"
    head_args = ("nc", "anchors", 32, 256)
    own_flags = ("mask_ratio", "no_overlap")
    val_items = BOXES


SEGMENTATION = Segmentation()
