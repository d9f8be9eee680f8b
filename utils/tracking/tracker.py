"""Detections of one source, frame by frame -> the same id for one object in all frames.

Before: `models/inference/image_detector.py` finds what is in a frame. After: `sources.py` keeps a
tracker for each source; `utils/results/result.py` holds the ids.

The tracker is ByteTrack (Zhang et al. 2022, arXiv:2110.06864), of the package trackers. It gives
more detections an id than the OC-SORT there, and changes no more of them: it follows objects where
their scores are low. `tests/unit/tracking/test_tracker.py` compares the two.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from utils.detections import AnyDetections, Detections, Segmentations
from utils.media.frame import Frame
from utils.optional import import_optional
from utils.tracking.clock import Clock

NO_ID = -1
LOWEST_SCORE = 0.1  # of what may continue a track; ByteTrack's
LOWEST_IOU = 0.2  # of a detection with where its object is expected; ByteTrack's first matching
SECONDS_LOST = 1.0  # that an object may be out of sight; ByteTrack's 30 frames of 30 a second
FRAMES_LOST = 2  # of sources with few frames a second
CLASS_APART = 1e7  # pixels: farther than any image is wide


def needed_threshold(confidence_threshold: float) -> float:
    """Return the lowest score of the detections that a tracker needs.

    Those below --conf begin no track; they only continue the track of an object.
    """
    return min(confidence_threshold, LOWEST_SCORE)


def make_tracker(
    rate: float | Fraction | None, confidence_threshold: float, class_agnostic: bool = False
) -> Tracker:
    """Return a tracker for one source.

    Args:
        rate: frames per second, of those that it is given; None if unknown.
        confidence_threshold: --conf, from which a detection counts as found and begins a track.
        class_agnostic: --agnostic-nms: an object may change its class. Without it NMS leaves a box
            for each class that an object may be of, and they would exchange their ids.

    Raises:
        UserError: the package trackers is not installed.
    """
    longest_usual_gap = SECONDS_LOST / (FRAMES_LOST + 1.5)  # half a gap to spare, for uneven ones
    return Tracker(Clock(rate, longest_usual_gap), confidence_threshold, class_agnostic)


class Tracker:
    """Gives the detections of one source ids, from 1, in the order in which objects appear.

    A detection has no id, NO_ID, in the first frame of an object: the next one confirms it. The
    same frames get the same ids.
    """

    def __init__(self, clock: Clock, confidence_threshold: float, class_agnostic: bool) -> None:
        trackers = import_optional("trackers", "--track")
        self._supervision = import_optional("supervision", "--track")
        self._clock = clock
        self._threshold = confidence_threshold
        self._apart = 0.0 if class_agnostic else CLASS_APART
        self._tracker = trackers.ByteTrackTracker(
            lost_track_buffer=round(SECONDS_LOST * 30),  # it counts in frames of 30 a second
            frame_rate=clock.rate,
            track_activation_threshold=confidence_threshold,
            high_conf_det_threshold=confidence_threshold,
            minimum_iou_threshold=LOWEST_IOU,
        )

    def update(self, detections: AnyDetections, frame: Frame) -> tuple[AnyDetections, np.ndarray]:
        """Return what is found in the next frame, and its ids.

        Args:
            detections: (K,) from `needed_threshold` on, pixels.
            frame: says when it is shown.

        Returns:
            The detections that count as found, and weaker ones that continue a track, in their
            order; and (K',) int64, from 1, or NO_ID.
        """
        ids = self._match(detections, self._clock.read(frame.seconds))
        kept = np.flatnonzero((detections.scores >= self._threshold) | (ids != NO_ID))
        return detections.take(kept), ids[kept]

    def _match(self, detections: Detections | Segmentations, seconds: float) -> np.ndarray:
        """Return the id of each detection; one whose box is not finite has none."""
        ids = np.full(len(detections.scores), NO_ID, np.int64)
        rows = np.flatnonzero(np.isfinite(detections.boxes_xyxy).all(axis=1))
        boxes, scores, class_index = (field[rows] for field in detections[:3])
        # The tracker knows no classes: boxes of one class are put where no others are.
        aside = class_index[:, None] * np.array([self._apart, 0, self._apart, 0])
        given = self._supervision.Detections(
            xyxy=boxes + aside, confidence=scores, data={"row": rows}
        )
        matched = self._tracker.update(given, timestamp=seconds)
        if len(matched):
            found = matched.tracker_id  # from 0, and -1 for none
            ids[matched.data["row"]] = np.where(found < 0, NO_ID, found + 1)
        return ids
