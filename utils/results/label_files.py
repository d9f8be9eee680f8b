"""What a validation finds, as YOLO label files: one for each image with detections.

Before: `models/evaluation.py`, image by image. After: the folder labels of val.py's run.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from utils.data.sources.samples import Sample
from utils.detections import Detections, GroundTruth
from utils.files.atomic import atomic_text_file
from utils.results.names import Names
from utils.results.text_lines import label_lines


class LabelFiles:
    """Lines of label files, added image by image and written together.

    Args:
        samples: whose images they are; two of one name get NAME.txt and NAME-2.txt.
        scores: whether lines have them.
    """

    def __init__(self, samples: Sequence[Sample], scores: bool) -> None:
        self._samples, self._scores = samples, scores
        self._lines: dict[int, list[str]] = {}

    def add(self, image_id: int, detections: Detections, ground_truth: GroundTruth) -> None:
        """Add the image at this index of samples; boxes in pixels of the image."""
        sample = self._samples[image_id]
        size = sample.height, sample.width
        self._lines[image_id] = label_lines(detections, size, scores=self._scores)

    def write(self, folder: Path) -> None:
        """Write the files into a folder that is made; without detections there is no file."""
        folder.mkdir(exist_ok=True)
        names = Names()
        for index, sample in enumerate(self._samples):
            path = folder / f"{names.take(sample.image_path.stem)}.txt"
            lines = self._lines.get(index)
            if not lines:  # nor does one of an earlier run in this folder stay
                path.unlink(missing_ok=True)
                continue
            with atomic_text_file(path) as file:
                file.writelines(f"{line}\n" for line in lines)
