"""Instance segmentation: boxes of objects, and their pixels."""

from __future__ import annotations

from utils.cli.train_config import TrainConfig
from utils.data.augment.transforms import WITHOUT_OUTLINES, transform_names
from utils.data.loading.mask_items import MaskItems
from utils.errors import UserError
from utils.tasks.task import Task


class Segmentation(Task):
    """Find each object, its class, its box and its mask."""

    name = "segment"
    head = "Segment"
    model = "models/yolov5s-seg.yaml"
    own_flags = ("mask_ratio", "no_overlap")
    val_items = MaskItems()

    def check(self, config: TrainConfig) -> None:
        super().check(config)
        for name in sorted(WITHOUT_OUTLINES & transform_names(config.albumentations)):
            raise UserError(
                f"--albumentations: {name} cuts objects into pieces, whose outlines are not "
                "known; leave it out where masks are trained"
            )

    def items(self, config: TrainConfig) -> MaskItems:
        return MaskItems(config.mask_ratio, not config.no_overlap)


SEGMENTATION = Segmentation()
