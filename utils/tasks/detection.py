"""Detection: boxes of objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from utils.data.loading.items import BOXES
from utils.data.sources.class_folders import refuse_classes
from utils.data.sources.coco_annotations import CocoAnnotations, read_coco_annotations
from utils.data.sources.samples import Sample, SampleTable
from utils.evaluation.coco.results_file import CocoResults
from utils.evaluation.legacy import LegacyEvaluator
from utils.report.console import legacy_table
from utils.tasks.task import LegacyMetric, Task


class Detection(Task):
    """Find each object, its class and its box."""

    name = "detect"
    head = "Detect"
    model = "models/yolov5s.yaml"
    head_args = ("nc", "anchors")
    val_items = BOXES
    fitness = {"mAP_0.5": 0.1, "mAP_0.5:0.95": 0.9}
    refused: ClassVar[Mapping[str, str]] = {}
    refused_by_val: ClassVar[Mapping[str, str]] = {}

    def about(self, document: Mapping[str, Any]) -> list[str]:
        return [f"anchors in pixels: {document.get('anchors', 'unknown')}"]

    def check_samples(self, samples: SampleTable, name: str, is_of_folders: bool = False) -> None:
        refuse_classes(name, is_of_folders)

    def annotations(
        self, path: Path, samples: Sequence[Sample], class_names: Sequence[str]
    ) -> CocoAnnotations:
        return read_coco_annotations(path, samples, class_names)

    def coco_results(self, class_names: Sequence[str], samples: Sequence[Sample]) -> CocoResults:
        return CocoResults(class_names, [sample.image_path for sample in samples])

    def legacy_metric(self, class_names: Sequence[str]) -> LegacyMetric:
        return LegacyMetric(LegacyEvaluator(class_names), legacy_table)


DETECTION = Detection()
