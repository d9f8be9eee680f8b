"""Detections -> lines of label files, in the form that the public YOLOv5 writes.

As there, the lowest score comes first.
"""

from __future__ import annotations

import numpy as np

from duet.utils.boxes import xyxy_to_cxcywh
from duet.utils.data.masks.runs import outline_of_runs
from duet.utils.detections import Detections, Segmentations

FEWEST_CORNERS = 3  # in an outline


def label_lines(
    found: Detections | Segmentations,
    image_size: tuple[int, int],
    scores: bool = False,
    track_ids: np.ndarray | None = None,
) -> list[str]:
    """Return one label per object: class, place, then score and track id where asked for.

    The place is centre and size of the box or, of an object with a mask, x and y of each corner of
    its outline: the piece with the most points. A mask with fewer than three corners has those of
    its box instead.

    Args:
        found: in pixels of the image; lines have fractions of its width and height.
        image_size: (height, width), pixels.
        track_ids: (K,) int64; None if nothing is tracked.
    """
    places = _outlines(found, image_size) if isinstance(found, Segmentations) else _boxes(found)
    lines = []
    for row in reversed(range(len(places))):
        place = places[row] / (image_size[1], image_size[0])
        numbers = [int(found.class_index[row]), *place.ravel().tolist()]
        numbers += [float(found.scores[row])] if scores else []
        numbers += [] if track_ids is None else [int(track_ids[row])]
        lines.append(" ".join(map(_number, numbers)))
    return lines


def _boxes(found: Detections) -> np.ndarray:
    """Return centre and size of each box, (K, 2, 2) float64 x and y in pixels."""
    return xyxy_to_cxcywh(found.boxes_xyxy.astype(np.float64)).reshape(-1, 2, 2)


def _outlines(found: Segmentations, image_size: tuple[int, int]) -> list[np.ndarray]:
    """Return the corners of each object, (N, 2) float64 x and y in pixels."""
    outlines = []
    for runs, box in zip(found.masks.rows(), found.boxes_xyxy, strict=True):
        corners = outline_of_runs(runs, image_size)
        if len(corners) < FEWEST_CORNERS:
            corners = box[[0, 1, 2, 1, 2, 3, 0, 3]].reshape(4, 2)
        outlines.append(corners.astype(np.float64))
    return outlines


def _number(value: float) -> str:
    """Return a whole number in full, another with six significant digits."""
    return str(value) if isinstance(value, int) else f"{value:.6g}"
