"""What a predictor is to those who only detect.

Before: `models/detector.py`, the simplest one; `half.py`, `augmented.py` and `ensemble.py` are made
of others. After: `image_detector.py` and `models/evaluation.py` take whatever is a `Predictor`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from models.heads.base import Head


class Predictor(Protocol):
    """A model as those see it who only detect; `Detector` is one."""

    @property
    def head(self) -> Head:
        """The head whose task it is, and which finishes what it predicts."""

    @property
    def stride(self) -> int:
        """Pixels that image sides must be a multiple of."""

    def __call__(self, *inputs: Any) -> Any:
        """Queue the work on one tensor (B, 3, H, W) in [0, 1]; return what `decode_above` takes."""

    def decode_above(self, raw: Any, confidence_threshold: float) -> list[np.ndarray]:
        """Return of each image the rows that may count as found, as `Head.decode_above` does."""

    def require_memory(self, shape: Sequence[int], trains: bool) -> None:
        """Raise UserError if images (B, 3, H, W) take too much, as `Detector.require_memory`."""
