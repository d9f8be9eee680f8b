"""What a task finds in an image, as a result, by the name of the task."""

from __future__ import annotations

from typing import Any

import numpy as np

from utils.detect.media.source import Frame
from utils.detect.results.class_result import ClassResult
from utils.detect.results.image_result import ImageResult
from utils.detect.results.result import MaskResult, Result

RESULTS: dict[str, type[ImageResult]] = {
    "detect": Result,
    "segment": MaskResult,
    "classify": ClassResult,
}


def result_of(
    task: str,
    frame: Frame,
    found: Any,
    class_names: tuple[str, ...],
    track_ids: np.ndarray | None = None,
) -> Any:
    """Return what `Head.finish` found in a frame as a result of a task.

    Args:
        class_names: of every class that the model knows.
        track_ids: (K,) int64; None if nothing is tracked.
    """
    tracked = () if track_ids is None else (track_ids,)
    return RESULTS[task](frame, found, class_names, *tracked)
