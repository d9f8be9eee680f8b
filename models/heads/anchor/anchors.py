"""Anchors: the box sizes that a model YAML lists, in cells of their levels or fitted to labels.

The checks and the threshold of the fit are those of the public YOLOv5.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np

from utils.cli.hyperparameters import Hyperparameters
from utils.data.anchors.fit import Fit, fit_anchors, measure_fit
from utils.errors import UserError, brief
from utils.text import count

MAX_LEVELS = 5  # strides 8 to 128
MAX_NUMBERS = 64  # of a level, two an anchor
MAX_SIDE = 100_000  # pixels
ENOUGH_RECALL = 0.98  # above it, anchors are kept

log = logging.getLogger("train")


def check_anchors(anchors: Any) -> tuple[tuple[float, ...], ...] | int:
    """Return anchors as (levels) of (width, height, width, height, ...) in pixels.

    A number, how many a level has, is returned as it is: see `unfitted_anchors`.
    """
    if type(anchors) is int and 1 <= anchors <= MAX_NUMBERS // 2:
        return anchors
    if not isinstance(anchors, Sequence) or isinstance(anchors, str) or not anchors:
        raise UserError(
            f"anchors: {brief(anchors)}; a list per level of [w, h, w, h, ...] is needed, or the "
            f"number of anchors per level, from 1 to {MAX_NUMBERS // 2}"
        )
    if len(anchors) > MAX_LEVELS:
        raise UserError(
            f"anchors: {count(len(anchors), 'level')}; at most {MAX_LEVELS} are accepted"
        )
    for level in anchors:
        if not _is_level(level) or len(level) != len(anchors[0]):
            raise UserError(
                f"anchors: {brief(level)}; every level lists equally many [w, h, ...] in "
                f"pixels, {MAX_NUMBERS} at most"
            )
    return tuple(tuple(float(value) for value in level) for level in anchors)


def _is_level(level: Any) -> bool:
    return (
        isinstance(level, Sequence)
        and 0 < len(level) <= MAX_NUMBERS
        and len(level) % 2 == 0
        # Files of models whose anchors were never fitted have sides of 0.
        and all(isinstance(value, (int, float)) and 0 <= value <= MAX_SIDE for value in level)
    )


def unfitted_anchors(number: int, levels: int) -> tuple[tuple[float, ...], ...]:
    """Return what a model has for `anchors: NUMBER` until they are fitted to a dataset.

    On each level the sides are 0, 1, 2, ... pixels, as those of the public models are.
    """
    return (tuple(map(float, range(2 * number))),) * levels


def anchors_in_cells(anchors: Sequence[Sequence[float]], strides: Sequence[int]) -> np.ndarray:
    """Map anchors in pixels, [w, h, w, h, ...] per level to (levels, A, 2) float32 in cells."""
    pixels = np.asarray(anchors, np.float32).reshape(len(anchors), -1, 2)
    return pixels / np.asarray(strides, np.float32).reshape(-1, 1, 1)


def number_to_fit(anchors: Any, hyp: Hyperparameters) -> int:
    """Return how many anchors per level are asked for without sizes; 0 if there are sizes.

    Args:
        anchors: of a model YAML.
    """
    return round(hyp.anchors) or (anchors if isinstance(anchors, int) else 0)


def choose_anchors(
    anchors: Any, strides: Sequence[int], sizes_wh: np.ndarray, hyp: Hyperparameters, seed: int
) -> Any:
    """Return the anchors to train with, as a model YAML has them, and log why these.

    Args:
        anchors: of the model: [w, h, w, h, ...] per level, in pixels, or a number of anchors.
        strides: of the levels.
        sizes_wh: (N, 2) of the training labels, pixels as training sees them.

    Raises:
        UserError: anchors must be fitted, and there are no labels.
    """

    def measure(levels: Any) -> Fit:
        return measure_fit(sizes_wh, np.reshape(np.array(levels), (-1, 2)), hyp.anchor_t)

    def fit_new(number: int) -> list[list[float]]:
        """Return so many anchors per level; larger ones for larger strides."""
        found = fit_anchors(sizes_wh, number * len(strides), hyp.anchor_t, seed)
        ranks = np.argsort(np.argsort(strides, kind="stable"), kind="stable")
        return found.reshape(len(strides), -1)[ranks].tolist()

    number = number_to_fit(anchors, hyp)
    if not len(sizes_wh):
        if number:
            raise UserError("anchors cannot be fitted: the training images have no labels")
        return anchors
    if number:
        fitted = fit_new(number)
        _log_new(f"{number} per level are fitted", measure(fitted), fitted)
        return fitted
    anchors = _in_order(anchors, strides)
    fit = measure(anchors)
    enough = fit.best_possible_recall > ENOUGH_RECALL
    log.info(
        "anchors: the model's fit the labels %s: %s", "well" if enough else "badly", describe(fit)
    )
    if enough:
        return anchors
    fitted = fit_new(len(anchors[0]) // 2)
    better = measure(fitted)
    if better.best_possible_recall <= fit.best_possible_recall:
        log.info("anchors: no better ones were found; the model's are kept")
        return anchors
    _log_new("replaced by fitted ones", better, fitted)
    return fitted


def describe(fit: Fit) -> str:
    """Return in words how well anchors fit."""
    recall = fit.best_possible_recall
    return f"best possible recall {recall:.3f}, {fit.anchors_per_target:.2f} per target"


def _log_new(what: str, fit: Fit, levels: Sequence[Sequence[float]]) -> None:
    log.info("anchors: %s: %s", what, describe(fit))
    for level in levels:
        pairs = zip(level[::2], level[1::2], strict=True)
        log.info("  %s", ", ".join(f"{width:g} x {height:g}" for width, height in pairs))


def _in_order(
    anchors: Sequence[Sequence[float]], strides: Sequence[int]
) -> Sequence[Sequence[float]]:
    """Return anchors so that the level of the largest stride has larger ones than the first."""
    areas = [np.prod(np.reshape(level, (-1, 2)), axis=1).mean() for level in anchors]
    if (areas[-1] - areas[0]) * (strides[-1] - strides[0]) >= 0:
        return anchors
    log.info("anchors: the order of the levels was opposite to their strides and is reversed")
    return anchors[::-1]
