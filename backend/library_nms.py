"""A library's kernel in place of `greedy_nms.py`, where it is shown to keep the same rows.

Imports no framework: a backend hands its kernel over.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np

from backend.checks import as_float32
from backend.greedy_nms import suppress_greedily

# (boxes_xyxy (N, 4) float32, group (N,) int64, iou_threshold, max_kept) -> (K,) int64 rows
Suppress = Callable[[np.ndarray, np.ndarray, float, int], np.ndarray]
# (boxes_xyxy (N, 4) float64 of one group, iou_threshold) -> (K,) rows, in any order
Kernel = Callable[[np.ndarray, float], np.ndarray]

PROBE_THRESHOLDS = (0.0, 0.25, 0.5, 0.6, 0.7, 1.0)

log = logging.getLogger("backend")


def choose(library: str, device: str, build: Callable[[], Kernel]) -> Suppress:
    """The library's kernel if it can be built and is exact, else NumPy; one line says which."""
    try:
        suppress = with_kernel(build())
        problem = "" if is_exact(suppress) else "differs from the exact rule"
    except (ImportError, RuntimeError) as error:
        problem = str(error).partition("\n")[0]
    if problem:
        return numpy_only(device, f"{library}: {problem}")
    log.info("suppression of overlaps on %s: %s", device, library)
    return suppress


def numpy_only(device: str, reason: str) -> Suppress:
    """The exact form, with a line that says why no library runs."""
    log.info("suppression of overlaps on %s: NumPy (%s)", device, reason)
    return suppress_greedily


def with_kernel(kernel: Kernel) -> Suppress:
    """suppress_greedily by means of a kernel that knows no groups."""

    def suppress(
        boxes_xyxy: np.ndarray, group: np.ndarray, iou_threshold: float, max_kept: int
    ) -> np.ndarray:
        apart = _groups_apart(boxes_xyxy, group)
        # Of no box a kernel may make an error.
        if apart is None or len(apart) == 0:
            return suppress_greedily(boxes_xyxy, group, iou_threshold, max_kept)

        def search(length: int) -> np.ndarray:
            return np.sort(kernel(apart[:length], iou_threshold))[:max_kept]

        return _search_prefixes(search, len(boxes_xyxy), max_kept)

    return suppress


def _search_prefixes(search: Callable[[int], np.ndarray], count: int, max_kept: int) -> np.ndarray:
    """What search(number of first rows) keeps, of as few rows as give the first max_kept."""
    # Suppression of a prefix is a prefix of the suppression of everything, and the rows allowed
    # are usually found among the first few thousand.
    length = 2 * max_kept
    while length < count:
        kept = search(length)
        if len(kept) == max_kept:
            return kept
        length *= 4
    return search(count)


def is_exact(suppress: Suppress) -> bool:
    """Whether an implementation keeps the exact rows where ties and rounding would show.

    Boxes on a coarse grid coincide, touch, lack area and meet thresholds exactly; scaled and far
    from the origin, they miss them by less than float32 arithmetic can tell.
    """
    random = np.random.Generator(np.random.Philox(0))
    corner, size = random.integers(-6, 6, (400, 2)), random.integers(0, 7, (400, 2))
    grid = np.concatenate((corner, corner + size), axis=1).astype(np.float32)
    scaled = grid / np.float32(3) + np.float32(500)
    group = random.integers(0, 3, 400)
    cases = [
        (boxes_xyxy, group, as_float32(threshold), max_kept)
        for boxes_xyxy in (grid, scaled)
        for threshold in PROBE_THRESHOLDS
        for max_kept in (30, len(group))
    ]
    return all(np.array_equal(suppress(*case), suppress_greedily(*case)) for case in cases)


def _groups_apart(boxes_xyxy: np.ndarray, group: np.ndarray) -> np.ndarray | None:
    """Boxes in float64, each group moved along x to where it meets no other.

    None when moving would round a coordinate, since then an overlap could change.
    """
    boxes = boxes_xyxy.astype(np.float64)
    number = np.unique(group, return_inverse=True)[1].reshape(-1)
    farthest = np.abs(boxes).max(initial=1.0)
    shift = (number * 4 * 2.0 ** np.ceil(np.log2(farthest)))[:, None]
    moved = boxes.copy()
    moved[:, 0::2] += shift
    # A sum that was rounded does not lead back.
    return moved if np.array_equal(moved[:, 0::2] - shift, boxes[:, 0::2]) else None
