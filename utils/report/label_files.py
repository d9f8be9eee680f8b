"""What was found as YOLO labels, lines and files, as the public YOLOv5 writes them.

As there, the lowest score comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from utils.atomic_files import atomic_text_file
from utils.boxes import xyxy_to_cxcywh
from utils.data.masks.runs import outline_of_runs
from utils.data.sources.samples import Sample
from utils.detections import Detections, GroundTruth, Segmentations

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


class Names:
    """Names, each given only once.

    The frames of a video NAME have NAME_1, NAME_2, ..., which are not given to others either.
    """

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._numbers: dict[str, int] = {}  # the last one behind a name
        self._videos: set[str] = set()
        self._like_frames: set[str] = set()  # NAME of those taken that are called NAME_1 and so on

    def take(self, name: str, is_video: bool = False) -> str:
        """Return the name; NAME-2, NAME-3, ... if it is taken, for itself or for a frame."""
        found = name
        while self._is_taken(found, is_video):
            self._numbers[name] = self._numbers.get(name, 1) + 1
            found = f"{name}-{self._numbers[name]}"
        self._taken.add(found)
        if is_video:
            self._videos.add(found)
        else:
            self._like_frames.add(_video_of_frame(found))
        return found

    def _is_taken(self, name: str, is_video: bool) -> bool:
        is_frame = name in self._like_frames if is_video else _video_of_frame(name) in self._videos
        return name in self._taken or is_frame


def _video_of_frame(stem: str) -> str:
    """Return NAME of NAME_12; "" for a stem that is not like a frame's."""
    name, _, number = stem.rpartition("_")
    return name if number.isdecimal() else ""


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
