"""What was found in one image.

Before: `models/inference/image_detector.py`. After: files, drawings, other programs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from utils.detections import Detections
from utils.media.frame import Frame


@dataclass(frozen=True)
class Result:
    """What was found in one image, highest score first."""

    frame: Frame
    detections: Detections  # in pixels of the frame
    class_names: tuple[str, ...]  # of every class that the model knows
    track_ids: np.ndarray | None = None  # (K,) int64, the same for one object in all frames

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
