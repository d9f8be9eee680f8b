"""What a validation finds, as YOLO label files: one for each image with detections."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from utils.data.sources.samples import Sample
from utils.detections import GroundTruth
from utils.files.atomic import atomic_text_file
from utils.results.names import Names


class LabelFiles:
    """Lines of label files, added image by image and written together.

    Args:
        samples: whose images they are; two of one name get NAME.txt and NAME-2.txt.
        lines_of: makes them of what is found in an image, in its pixels, and of its
            (height, width).
    """

    def __init__(
        self, samples: Sequence[Sample], lines_of: Callable[[Any, tuple[int, int]], list[str]]
    ) -> None:
        self._samples, self._lines_of = samples, lines_of
        self._lines: dict[int, list[str]] = {}

    def add(self, image_id: int, found: Any, ground_truth: GroundTruth) -> None:
        """Add the image at this index of samples."""
        sample = self._samples[image_id]
        self._lines[image_id] = self._lines_of(found, (sample.height, sample.width))

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
