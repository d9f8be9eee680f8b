"""Instance segmentation: boxes of objects, and their pixels."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from utils.cli.train_config import TrainConfig
from utils.data.loading.items import MaskItems, complete_outlines
from utils.data.loading.reading import objects_of
from utils.data.masks.runs import areas, runs_of_polygons
from utils.data.sources.class_folders import refuse_classes
from utils.data.sources.coco_annotations import CocoAnnotations, read_coco_annotations
from utils.data.sources.samples import Sample, SampleTable
from utils.detections import GroundTruth
from utils.errors import DatasetError, UserError
from utils.evaluation.coco.results_file import CocoMaskResults
from utils.evaluation.masks import legacy_masks
from utils.model_yamls import args_of
from utils.ragged import Ragged
from utils.report.console import legacy_table
from utils.tasks.task import LegacyMetric, Task
from utils.text import count

log = logging.getLogger("data")


class Segmentation(Task):
    """Find each object, its class, its box and its mask."""

    name = "segment"
    head = "Segment"
    model = "models/yolov5s-seg.yaml"
    own_flags = ("mask_ratio", "no_overlap")
    head_args = ("nc", "anchors", 32, 256)
    val_items = MaskItems()
    fitness: ClassVar[Mapping[str, float]] = {
        "mAP_0.5(B)": 0.1, "mAP_0.5:0.95(B)": 0.9, "mAP_0.5(M)": 0.1, "mAP_0.5:0.95(M)": 0.9,
    }  # fmt: skip
    refused: ClassVar[Mapping[str, str]] = {
        "tile": "masks that are found in tiles cannot be put together",
        "letterbox": "masks lie over the network's input, not over the image",
        "efficient_nms": "TensorRT's operator has no masks; give only --nms",
    }
    refused_by_val: ClassVar[Mapping[str, str]] = {}

    def items(self, config: TrainConfig) -> MaskItems:
        return MaskItems(config.mask_ratio, not config.no_overlap)

    def ground_truth(self, sample: Sample) -> GroundTruth:
        """Return the labels with the pixels that pycocotools gives their outlines; an object
        without one is its box.
        """
        labels = super().ground_truth(sample)
        outlines = complete_outlines(objects_of(sample).polygons, labels.boxes_xyxy)
        size = sample.height, sample.width
        rows = [runs_of_polygons([outlines.outline(i)], size) for i in range(len(outlines))]
        masks = Ragged.of(rows, np.uint32)
        return labels._replace(area=areas(masks), masks=masks)

    def annotations(
        self, path: Path, samples: Sequence[Sample], class_names: Sequence[str]
    ) -> CocoAnnotations:
        found = read_coco_annotations(path, samples, class_names, masks=True)
        num_objects = sum(len(objects.class_index) for objects in found.objects)
        if num_objects and not found.num_segmentations:
            raise UserError(
                f"--annotations {path}: none of its {count(num_objects, 'object')} has a "
                "segmentation, and masks need them; give a file that has some, or leave it out"
            )
        return found

    def coco_results(
        self, class_names: Sequence[str], samples: Sequence[Sample]
    ) -> CocoMaskResults:
        return CocoMaskResults(class_names, samples)

    def legacy_metric(self, class_names: Sequence[str]) -> LegacyMetric:
        return LegacyMetric(legacy_masks(class_names), legacy_table)

    def check_samples(self, samples: SampleTable, name: str, is_of_folders: bool = False) -> None:
        refuse_classes(name, is_of_folders)
        if samples.polygons_norm is None:
            raise DatasetError(
                f"{name}: its labels are boxes, and masks need polygons, a line 'class x1 y1 x2 y2 "
                "x3 y3 ...' for each object; label them, or take a detector, which train.py makes "
                "with --task detect, or --cfg yolov5s.yaml"
            )
        num_objects = len(samples.class_index)
        if missing := num_objects - int(np.count_nonzero(samples.polygons_norm.num_points)):
            total, text = count(num_objects, "object"), "their boxes count as their masks"
            log.info("%s: %s of %s have no outline: %s", name, f"{missing:,}", total, text)

    def about(self, document: Mapping[str, Any]) -> list[str]:
        args = dict(enumerate(args_of(document)))
        return [
            f"anchors in pixels: {document.get('anchors', 'unknown')}",
            f"masks: {args.get(2, 'unknown')} prototypes, of {args.get(3, 'unknown')} channels "
            "times the width multiple",
        ]


SEGMENTATION = Segmentation()
