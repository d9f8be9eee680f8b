"""The frames of many sources -> ids, which begin at 1 in each.

Before: `tracker.py` tracks one source. After: `models/inference/job.py` and `models.load`.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np

from utils.detections import AnyDetections
from utils.media.frame import Frame
from utils.tracking.tracker import Tracker, make_tracker


@dataclass
class _Tracked:
    tracker: Tracker
    number: int | None  # of its last frame


class SourceTrackers:
    """A tracker for each video, camera and stream; images that are files are one sequence together.

    The frames of a source come in order, those of several sources in any order.
    """

    def __init__(self, confidence_threshold: float, class_agnostic: bool = False) -> None:
        """Make it with the settings of `make_tracker`."""
        self._settings = confidence_threshold, class_agnostic
        self._tracked: dict[Path | str | None, _Tracked] = {}

    def update(
        self, detections: AnyDetections, frame: Frame, rate: float | Fraction | None
    ) -> tuple[AnyDetections, np.ndarray]:
        """Return what is found in a frame and its ids, as `Tracker.update` does.

        Args:
            rate: frames per second of its source; None if unknown.
        """
        name = None if frame.number is None else frame.source
        tracked = self._tracked.get(name)
        if tracked is None or _starts_again(tracked.number, frame.number):
            tracked = _Tracked(make_tracker(rate, *self._settings), frame.number)
            self._tracked[name] = tracked
        tracked.number = frame.number
        return tracked.tracker.update(detections, frame)


def _starts_again(last: int | None, number: int | None) -> bool:
    """Whether a video is read from its start again."""
    return last is not None and number is not None and number <= last
