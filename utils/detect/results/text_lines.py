"""What was found, as the words and the lines of files that the public YOLOv5 writes.

In files, as there, the lowest score comes first.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from utils.atomic_files import atomic_text_file
from utils.boxes import xyxy_to_cxcywh
from utils.data.masks.runs import outline_of_runs
from utils.data.sources.samples import Sample
from utils.detect.results.names import Names
from utils.detections import Detections, GroundTruth, Segmentations
from utils.text import printable

FEWEST_CORNERS = 3  # of an outline


def label_lines(
    detections: Detections | Segmentations,
    image_size: tuple[int, int],
    track_ids: np.ndarray | None = None,
    scores: bool = False,
) -> list[str]:
    """Return one YOLO label per detection: class, centre and size, then the score and track id.

    Args:
        detections: in pixels of the image; lines have fractions of its width and height.
        image_size: (height, width), pixels.
        track_ids: (K,) int64; None if nothing is tracked.
        scores: whether lines have them.
    """
    height, width = image_size
    boxes_cxcywh = xyxy_to_cxcywh(detections.boxes_xyxy.astype(np.float64))
    places = (boxes_cxcywh / (width, height, width, height)).tolist()
    return _lines(detections, places, track_ids, scores)


def outline_lines(
    detections: Segmentations,
    image_size: tuple[int, int],
    track_ids: np.ndarray | None = None,
    scores: bool = False,
) -> list[str]:
    """Return one YOLO label per object: class, x and y of each corner, then score and track id.

    The outline is that of the piece with the most points, as in the public YOLOv5. One of fewer
    than three corners, as that of a mask of a pixel or of none, is no label: the corners of its box
    stand for it. The arguments are those of `label_lines`.
    """
    height, width = image_size
    places = []
    for runs, box in zip(detections.masks.rows(), detections.boxes_xyxy, strict=True):
        corners = outline_of_runs(runs, image_size)
        if len(corners) < FEWEST_CORNERS:
            corners = box[[0, 1, 2, 1, 2, 3, 0, 3]].reshape(4, 2)
        places.append((corners.astype(np.float64) / (width, height)).ravel().tolist())
    return _lines(detections, places, track_ids, scores)


def _lines(
    detections: Detections | Segmentations,
    places: Sequence[Sequence[float]],
    track_ids: np.ndarray | None,
    scores: bool,
) -> list[str]:
    """Return lines of class, place, and of score and track id what is asked for."""
    lines = []
    for row in reversed(range(len(places))):
        numbers = [int(detections.class_index[row]), *places[row]]
        numbers += [float(detections.scores[row])] if scores else []
        numbers += [] if track_ids is None else [int(track_ids[row])]
        lines.append(" ".join(map(_number, numbers)))
    return lines


def _number(value: float) -> str:
    """Return a whole number in full, another with six significant digits."""
    return str(value) if isinstance(value, int) else f"{value:.6g}"


def table_lines(
    image_name: str,
    names: Sequence[str],
    scores: np.ndarray,
    track_ids: np.ndarray | None = None,
) -> str:
    """Return lines of CSV: image, class name, score (K,), track id (K,) if there are any."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for row in reversed(range(len(names))):
        last = [] if track_ids is None else [int(track_ids[row])]
        score = f"{float(scores[row]):.2f}"
        writer.writerow([printable(image_name), printable(names[row]), score, *last])
    return text.getvalue()


def count_by_class(class_index: np.ndarray, class_names: Sequence[str]) -> str:
    """Return "2 persons, 1 bus", by class number; "(no detections)" for none."""
    numbers, counts = np.unique(class_index, return_counts=True)
    found = [
        f"{number} {class_names[index] if number == 1 else _plural(class_names[index])}"
        for index, number in zip(numbers.tolist(), counts.tolist(), strict=True)
    ]
    return ", ".join(found) or "(no detections)"


def _plural(name: str) -> str:
    """Return a name with an s, as the public lines have it, unless that would make "skiss"."""
    return f"{name}s" if name[-1:].isascii() and not name.endswith("s") else name


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
