"""Instance segmentation: boxes of objects, and their pixels."""

from __future__ import annotations

import numpy as np

from utils.data.loading.items import BOXES
from utils.detections import Segmentations
from utils.media.frame import Frame
from utils.results.mask_result import MaskResult
from utils.tasks.task import Task


class Segmentation(Task):
    """Find each object, its class, its box and its mask."""

    name = "segment"
    head = "Segment"
    model = "models/yolov5s-seg.yaml"
    own_flags = ("mask_ratio", "no_overlap")
    val_items = BOXES
    meaningless = {"tile": "masks that are found in tiles cannot be put together"}

    def result(
        self,
        frame: Frame,
        found: Segmentations,
        class_names: tuple[str, ...],
        track_ids: np.ndarray | None = None,
    ) -> MaskResult:
        return MaskResult(frame, found, class_names, track_ids)


SEGMENTATION = Segmentation()
