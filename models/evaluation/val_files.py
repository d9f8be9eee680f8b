"""Extra inputs, outputs and metrics of val.py, by task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from duet.utils.atomic_files import atomic_text_file
from duet.utils.data.sources.coco_annotations import CocoAnnotations, read_coco_annotations
from duet.utils.data.sources.label_lines import label_lines
from duet.utils.data.sources.samples import Sample
from duet.utils.detections import Detections, GroundTruth, Segmentations
from duet.utils.errors import UserError
from duet.utils.evaluation.legacy import LegacyEvaluator, legacy_masks
from duet.utils.text import count


class ValFiles(NamedTuple):
    """A task's functions for val.py-only flags; `Task.refused_by_val` rejects them for others.

    Attributes:
        annotations: reads the samples' objects from a COCO file, for --annotations; UserError for
            an invalid file.
        legacy: creates the evaluator of YOLOv5's own metrics, for --legacy-metric.
    """

    annotations: Callable[[Path, Sequence[Sample], Sequence[str]], CocoAnnotations]
    legacy: Callable[[Sequence[str]], Any]


def _mask_annotations(
    path: Path, samples: Sequence[Sample], class_names: Sequence[str]
) -> CocoAnnotations:
    found = read_coco_annotations(path, samples, class_names, masks=True)
    num_objects = sum(len(objects.class_index) for objects in found.objects)
    if num_objects and not found.num_segmentations:
        raise UserError(
            f"--annotations {path}: none of its {count(num_objects, 'object')} has a "
            "segmentation, which masks require; use a file with segmentations, or omit the flag"
        )
    return found


VAL_FILES: dict[str, ValFiles] = {
    "detect": ValFiles(read_coco_annotations, LegacyEvaluator),
    "detect-anchor-free": ValFiles(read_coco_annotations, LegacyEvaluator),
    "segment": ValFiles(_mask_annotations, legacy_masks),
}


class LabelFiles:
    """Label files, collected image by image and written together.

    samples: the images' samples; scores: whether to write scores.
    """

    def __init__(self, samples: Sequence[Sample], scores: bool) -> None:
        self._samples, self._scores = samples, scores
        self._lines: dict[int, list[str]] = {}

    def add(
        self, image_id: int, found: Detections | Segmentations, ground_truth: GroundTruth
    ) -> None:
        """Add the detections of the image at a sample index, in its pixels."""
        sample = self._samples[image_id]
        self._lines[image_id] = label_lines(found, (sample.height, sample.width), self._scores)

    def write(self, folder: Path) -> None:
        """Create the folder and write a file per image with detections.

        If several images have the same name, the second becomes NAME-2.txt.
        """
        folder.mkdir(exist_ok=True)
        taken: set[str] = set()
        for index, sample in enumerate(self._samples):
            name, number = sample.image_path.stem, 1
            while name in taken:
                number += 1
                name = f"{sample.image_path.stem}-{number}"
            taken.add(name)
            path = folder / f"{name}.txt"
            lines = self._lines.get(index)
            if not lines:  # remove the file of an earlier run
                path.unlink(missing_ok=True)
                continue
            with atomic_text_file(path) as file:
                file.writelines(f"{line}\n" for line in lines)
