"""Write detections as label files, as --save-txt of val.py does."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from duet.utils.data.sources.label_file import label_lines
from duet.utils.data.sources.samples import Sample
from duet.utils.files.atomic import atomic_text_file
from duet.utils.files.run_folder import FOLDS_CASE, Names
from duet.utils.geometry.detections import Detections, GroundTruth, Segmentations


class LabelFiles:
    """Detections collected image by image, and written together as label files.

    samples: the images' samples; scores: whether to write scores.
    """

    def __init__(self, samples: Sequence[Sample], scores: bool) -> None:
        self._samples, self._scores = samples, scores
        self._images: dict[int, Detections | Segmentations] = {}  # text takes five times as much

    def add(
        self, image_id: int, found: Detections | Segmentations, ground_truth: GroundTruth
    ) -> None:
        """Add the finite detections of the image at a sample index, in its pixels."""
        finite = np.flatnonzero(np.isfinite(found.boxes_xyxy).all(axis=1))
        if len(finite):
            self._images[image_id] = found.take(finite)

    def write(self, folder: Path, folds_case: bool = FOLDS_CASE) -> None:
        """Create the folder and write a file per image with detections.

        If several images have the same name, the second becomes NAME-2.txt.
        """
        folder.mkdir(exist_ok=True)
        names = Names(folds_case)
        for index, sample in enumerate(self._samples):
            path = folder / f"{names.take(sample.image_path.stem)}.txt"
            found = self._images.get(index)
            if found is None:  # remove the file of an earlier run
                path.unlink(missing_ok=True)
                continue
            lines = label_lines(found, (sample.height, sample.width), self._scores)
            with atomic_text_file(path, synced=False) as file:
                file.writelines(f"{line}\n" for line in lines)
