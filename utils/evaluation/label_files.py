"""The label files of val.py --save-txt."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from utils.atomic_files import atomic_text_file
from utils.data.sources.label_lines import label_lines
from utils.data.sources.samples import Sample
from utils.detections import Detections, GroundTruth, Segmentations


class LabelFiles:
    """Lines of label files, added image by image and written together.

    samples: those of the images; scores: whether lines have them.
    """

    def __init__(self, samples: Sequence[Sample], scores: bool) -> None:
        self._samples, self._scores = samples, scores
        self._lines: dict[int, list[str]] = {}

    def add(
        self, image_id: int, found: Detections | Segmentations, ground_truth: GroundTruth
    ) -> None:
        """Add what is found in the image at this index of samples, in its pixels."""
        sample = self._samples[image_id]
        self._lines[image_id] = label_lines(found, (sample.height, sample.width), self._scores)

    def write(self, folder: Path) -> None:
        """Write the files into a folder that is made; without detections there is no file.

        Of several images of one name the second gets NAME-2.txt.
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
            if not lines:  # nor does one of an earlier run in this folder stay
                path.unlink(missing_ok=True)
                continue
            with atomic_text_file(path) as file:
                file.writelines(f"{line}\n" for line in lines)
