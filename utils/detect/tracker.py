"""Track the objects of each source: one ID per object in all its frames.

The tracker is ByteTrack (Zhang et al. 2022, arXiv:2110.06864) from the package trackers. On planted
objects it gave more detections an ID than OC-SORT, with no more switches.
"""

from fractions import Fraction
from pathlib import Path

import numpy as np

from duet.utils.detect.media.source import Frame
from duet.utils.geometry.detections import AnyDetections, Detections, Segmentations
from duet.utils.optional import import_optional

NO_ID = -1
LOWEST_SCORE = 0.1  # a detection below --conf begins no track, but may continue one; as ByteTrack
LOWEST_IOU = 0.2  # of a detection and the predicted box; ByteTrack's first matching
SECONDS_LOST = 1.0  # that an object may be out of sight; ByteTrack's 30 frames of 30 a second
# Longer gaps between frames, as in a stream that the network is too slow for, count as this long:
# an object may be missing in two frames, with half a gap to spare for uneven ones.
LONGEST_GAP = SECONDS_LOST / 3.5
USUAL_RATE = 30.0  # frames a second, where it is unknown
HIGHEST_RATE = 1000.0  # broken headers have higher ones
CLASS_APART = 1e7  # pixels: farther than any image is wide


class SourceTrackers:
    """A tracker per video, camera and stream, and one for all image files.

    Frames of one source must come in order.
    """

    def __init__(self, confidence_threshold: float, class_agnostic: bool = False) -> None:
        self._settings = confidence_threshold, class_agnostic
        self._trackers: dict[Path | str | None, Tracker] = {}

    def update(
        self, detections: AnyDetections, frame: Frame, rate: float | Fraction | None
    ) -> tuple[AnyDetections, np.ndarray]:
        """Return the tracked detections in a frame and their IDs; rate: None if unknown."""
        name = None if frame.number is None else frame.source
        if name not in self._trackers:
            self._trackers[name] = Tracker(rate, *self._settings)
        return self._trackers[name].update(detections, frame)


class Tracker:
    """Assigns IDs to the detections of one source, from 1 in order of appearance.

    In an object's first frame the ID is NO_ID, because the next frame confirms the object.
    """

    def __init__(
        self,
        rate: float | Fraction | None,
        confidence_threshold: float,
        class_agnostic: bool = False,
    ) -> None:
        """Create a tracker for one source; UserError if the package is missing.

        Args:
            rate: frames per second; None if unknown.
            confidence_threshold: --conf, the lowest score that starts a track.
            class_agnostic: --agnostic-nms: an object may change its class. Otherwise NMS keeps a
                box per possible class of an object, and these would swap IDs.
        """
        trackers = import_optional("trackers", "--track")
        self._supervision = import_optional("supervision", "--track")
        self._rate = float(rate) if rate and 0 < rate <= HIGHEST_RATE else USUAL_RATE
        self._last_seconds: float | None = None
        self._now = 0.0  # seconds, which increase with each frame
        self._threshold = confidence_threshold
        self._apart = 0.0 if class_agnostic else CLASS_APART
        self._tracker = trackers.ByteTrackTracker(
            lost_track_buffer=round(SECONDS_LOST * 30),  # it counts in frames of 30 a second
            frame_rate=self._rate,
            track_activation_threshold=confidence_threshold,
            high_conf_det_threshold=confidence_threshold,
            minimum_iou_threshold=LOWEST_IOU,
        )

    def update(self, detections: AnyDetections, frame: Frame) -> tuple[AnyDetections, np.ndarray]:
        """Return the detections that count and their IDs, (K',) int64, from 1, or NO_ID.

        Detections below the threshold, down to `LOWEST_SCORE`, count if they continue a track.
        """
        self._now += min(self._gap(frame), LONGEST_GAP)
        self._last_seconds = frame.seconds
        ids = self._match(detections)
        kept = np.flatnonzero((detections.scores >= self._threshold) | (ids != NO_ID))
        return detections.take(kept), ids[kept]

    def _gap(self, frame: Frame) -> float:
        """Return the seconds since the last frame, by the frame rate if there are no times."""
        if frame.seconds is None or self._last_seconds is None:
            return 1 / self._rate
        gap = frame.seconds - self._last_seconds
        return gap if gap > 0 else 1 / self._rate

    def _match(self, detections: Detections | Segmentations) -> np.ndarray:
        ids = np.full(len(detections.scores), NO_ID, np.int64)
        rows = np.flatnonzero(np.isfinite(detections.boxes_xyxy).all(axis=1))
        boxes, scores, class_index = (field[rows] for field in detections[:3])
        # The tracker knows no classes: boxes of one class are put where no others are.
        aside = class_index[:, None] * np.array([self._apart, 0, self._apart, 0])
        given = self._supervision.Detections(
            xyxy=boxes + aside, confidence=scores, data={"row": rows}
        )
        matched = self._tracker.update(given, timestamp=self._now)
        if len(matched):
            found = matched.tracker_id  # from 0, and -1 for none
            ids[matched.data["row"]] = np.where(found < 0, NO_ID, found + 1)
        return ids
