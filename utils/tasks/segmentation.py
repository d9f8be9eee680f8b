"""Instance segmentation: boxes of objects, and their pixels."""

from __future__ import annotations

from utils.cli.train_config import TrainConfig
from utils.data.loading.mask_items import MaskItems
from utils.tasks.task import Task


class Segmentation(Task):
    """Find each object, its class, its box and its mask."""

    name = "segment"
    head = "Segment"
    model = "models/yolov5s-seg.yaml"
    own_flags = ("mask_ratio", "no_overlap")
    val_items = MaskItems()

    def items(self, config: TrainConfig) -> MaskItems:
        return MaskItems(config.mask_ratio, not config.no_overlap)


SEGMENTATION = Segmentation()
