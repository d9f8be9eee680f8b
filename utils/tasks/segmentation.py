"""Instance segmentation: boxes of objects, and their pixels."""

from __future__ import annotations

from utils.data.loading.items import BOXES
from utils.tasks.task import Task


class Segmentation(Task):
    """Find each object, its class, its box and its mask."""

    name = "segment"
    head = "Segment"
    model = "models/yolov5s-seg.yaml"
    own_flags = ("mask_ratio", "no_overlap")
    head_args = ("nc", "anchors", 32, 256)
    val_items = BOXES
    fitness = {
        "mAP_0.5(B)": 0.1, "mAP_0.5:0.95(B)": 0.9, "mAP_0.5(M)": 0.1, "mAP_0.5:0.95(M)": 0.9,
    }  # fmt: skip


SEGMENTATION = Segmentation()
