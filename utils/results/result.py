"""What was found in one image.

Before: `models/inference/image_detector.py`. After: files, drawings, other programs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from utils.detections import Detections
from utils.drawing.annotate import draw_boxes
from utils.drawing.crop import crop_box
from utils.drawing.fonts import drawable_name
from utils.media.frame import Frame


@dataclass(frozen=True)
class Result:
    """What was found in one image, highest score first."""

    frame: Frame
    detections: Detections  # in pixels of the frame
    class_names: tuple[str, ...]  # of every class that the model knows
    track_ids: np.ndarray | None = None  # (K,) int64, one for an object in all frames; -1: none

    @property
    def image(self) -> np.ndarray:
        """(H, W, 3) uint8 RGB, as it was read."""
        return self.frame.image

    @property
    def boxes_xyxy(self) -> np.ndarray:
        """(K, 4) float32, pixels of the image."""
        return self.detections.boxes_xyxy

    @property
    def scores(self) -> np.ndarray:
        """(K,) float32 in (0, 1]."""
        return self.detections.scores

    @property
    def class_index(self) -> np.ndarray:
        """(K,) int64."""
        return self.detections.class_index

    @cached_property
    def names(self) -> list[str]:
        """The class name of each detection."""
        return [self.class_names[index] for index in self.class_index.tolist()]

    def plot(
        self, line_width: int | None = None, labels: bool = True, scores: bool = True
    ) -> np.ndarray:
        """Return a copy of the image, (H, W, 3) uint8 RGB, with boxes and labels drawn.

        Args:
            line_width: pixels; None for what suits the image.
            labels: write the class on each box, as "person 0.87", and a track's number before it.
            scores: write its score too.
        """
        texts = self._labels(scores) if labels else [""] * len(self.scores)
        return draw_boxes(self.image, self.boxes_xyxy, self.class_index, texts, line_width)

    def _labels(self, scores: bool) -> list[str]:
        """Return "7 person 0.87" for each detection, of that what there is and is asked for."""
        columns = [list(map(drawable_name, self.names, self.class_index.tolist()))]
        if self.track_ids is not None:
            columns.insert(0, [str(number) if number > 0 else "" for number in self.track_ids])
        if scores:
            columns.append([f"{score:.2f}" for score in self.scores.tolist()])
        return [" ".join(filter(None, words)) for words in zip(*columns, strict=True)]

    def crop(self, gain: float = 1.02, pad: float = 10, square: bool = False) -> list[np.ndarray]:
        """Return what each box shows, with a margin: (h, w, 3) uint8 RGB of its own size.

        Args:
            gain: by which the sides of a box are multiplied.
            pad: pixels that are added to each side afterwards, half of them at either end.
            square: make both sides of a box as long as its longer one before.
        """
        return [crop_box(self.image, box, gain, pad, square) for box in self.boxes_xyxy]
