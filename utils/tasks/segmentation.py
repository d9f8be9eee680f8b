"""Instance segmentation: boxes of objects, and their pixels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from utils.data.loading.items import BOXES
from utils.files.models import args_of
from utils.tasks.task import Task


class Segmentation(Task):
    """Find each object, its class, its box and its mask."""

    name = "segment"
    head = "Segment"
    model = "models/yolov5s-seg.yaml"
    own_flags = ("mask_ratio", "no_overlap")
    val_items = BOXES
    fitness: ClassVar[Mapping[str, float]] = {
        "mAP_0.5(B)": 0.1, "mAP_0.5:0.95(B)": 0.9, "mAP_0.5(M)": 0.1, "mAP_0.5:0.95(M)": 0.9,
    }  # fmt: skip

    def about(self, document: Mapping[str, Any]) -> list[str]:
        args = dict(enumerate(args_of(document)))
        return [
            f"anchors in pixels: {document.get('anchors', 'unknown')}",
            f"masks: {args.get(2, 'unknown')} prototypes, of {args.get(3, 'unknown')} channels "
            "times the width multiple",
        ]


SEGMENTATION = Segmentation()
