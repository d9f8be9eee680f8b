"""What val.py reads, writes and measures beside COCO's figures, by the name of the task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from utils.data.sources.coco_annotations import CocoAnnotations, read_coco_annotations
from utils.data.sources.samples import Sample
from utils.errors import UserError
from utils.evaluation.coco.results_file import CocoMaskResults, CocoResults
from utils.evaluation.legacy import LegacyEvaluator
from utils.evaluation.masks import legacy_masks
from utils.text import count


class ValFiles(NamedTuple):
    """What a task has for flags of val.py alone; `Task.refused_by_val` refuses them for others.

    Attributes:
        annotations: reads the objects of samples in COCO's file, for --annotations; UserError for
            a file that is not as it should be.
        coco_results: makes what writes predictions.json, for --save-json.
        legacy: makes what measures YOLOv5's own figures, for --legacy-metric.
    """

    annotations: Callable[[Path, Sequence[Sample], Sequence[str]], CocoAnnotations]
    coco_results: Callable[[Sequence[str], Sequence[Sample]], CocoResults]
    legacy: Callable[[Sequence[str]], Any]


def _of_boxes(class_names: Sequence[str], samples: Sequence[Sample]) -> CocoResults:
    return CocoResults(class_names, [sample.image_path for sample in samples])


def _mask_annotations(
    path: Path, samples: Sequence[Sample], class_names: Sequence[str]
) -> CocoAnnotations:
    found = read_coco_annotations(path, samples, class_names, masks=True)
    num_objects = sum(len(objects.class_index) for objects in found.objects)
    if num_objects and not found.num_segmentations:
        raise UserError(
            f"--annotations {path}: none of its {count(num_objects, 'object')} has a "
            "segmentation, and masks need them; give a file that has some, or leave it out"
        )
    return found


VAL_FILES: dict[str, ValFiles] = {
    "detect": ValFiles(read_coco_annotations, _of_boxes, LegacyEvaluator),
    "segment": ValFiles(_mask_annotations, CocoMaskResults, legacy_masks),
}
