"""What a model finds in a frame -> the result of its task."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from utils.detect.media.source import Frame
from utils.detect.results.class_result import ClassResult
from utils.detect.results.image_result import ImageResult
from utils.detect.results.result import MaskResult, Result


def result_of(
    task: str,
    frame: Frame,
    found: Any,
    class_names: tuple[str, ...],
    track_ids: np.ndarray | None = None,
) -> ImageResult:
    """Return what `Head.finish` found in a frame as a result.

    Args:
        task: the name of the head's task.
        class_names: of every class that the model knows.
        track_ids: (K,) int64; None if nothing is tracked.
    """
    return RESULTS[task](frame, found, class_names, track_ids)


def _classes(
    frame: Frame, found: Any, class_names: tuple[str, ...], track_ids: np.ndarray | None
) -> ImageResult:
    return ClassResult(frame, found, class_names)


def _boxes(
    kind: type[Result],
    frame: Frame,
    found: Any,
    class_names: tuple[str, ...],
    track_ids: np.ndarray | None,
) -> ImageResult:
    """Return a result without boxes that are not finite, as float16 may give them."""
    rows = np.flatnonzero(np.isfinite(found.boxes_xyxy).all(axis=1))
    ids = None if track_ids is None else track_ids[rows]
    return kind(frame, found.take(rows), class_names, ids)


RESULTS: dict[str, Callable[..., ImageResult]] = {
    "detect": partial(_boxes, Result),
    "segment": partial(_boxes, MaskResult),
    "classify": _classes,
}
