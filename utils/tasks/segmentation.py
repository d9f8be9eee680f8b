"""Instance segmentation: boxes of objects, and their pixels."""

from __future__ import annotations

from utils.data.loading.items import BOXES
from utils.data.sources.class_folders import refuse_classes
from utils.data.sources.samples import SampleTable
from utils.errors import DatasetError
from utils.tasks.task import Task


class Segmentation(Task):
    """Find each object, its class, its box and its mask."""

    name = "segment"
    head = "Segment"
    model = "models/yolov5s-seg.yaml"
    head_args = ("nc", "anchors", 32, 256)
    own_flags = ("mask_ratio", "no_overlap")
    val_items = BOXES

    def check_samples(self, samples: SampleTable, name: str) -> None:
        refuse_classes(samples, name)
        if samples.polygons_norm is None:
            raise DatasetError(
                f"{name}: its labels are boxes, and segmentation learns from polygons, a line "
                "'class x1 y1 x2 y2 x3 y3 ...' for each object; label them, or train a detector: "
                "--task detect, or --cfg yolov5s.yaml"
            )


SEGMENTATION = Segmentation()
