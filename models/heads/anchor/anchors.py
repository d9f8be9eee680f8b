"""Anchors: the box sizes in a model YAML, in pixels or in cells of their level."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from duet.utils.errors import UserError, brief
from duet.utils.text import count

MAX_LEVELS = 5  # strides 8 to 128
MAX_NUMBERS = 64  # per level, two per anchor
MAX_SIDE = 100_000  # pixels


def check_anchors(anchors: Any) -> tuple[tuple[float, ...], ...] | int:
    """Return anchors per level as (width, height, width, height, ...) in pixels.

    A number of anchors per level is returned unchanged: see `unfitted_anchors`.
    """
    if type(anchors) is int and 1 <= anchors <= MAX_NUMBERS // 2:
        return anchors
    if not isinstance(anchors, Sequence) or isinstance(anchors, str) or not anchors:
        raise UserError(
            f"anchors: {brief(anchors)}; accepted: a list per level of [w, h, w, h, ...], or the "
            f"number of anchors per level, from 1 to {MAX_NUMBERS // 2}"
        )
    if len(anchors) > MAX_LEVELS:
        raise UserError(f"anchors: {count(len(anchors), 'level')}; accepted: at most {MAX_LEVELS}")
    for level in anchors:
        if not _is_level(level) or len(level) != len(anchors[0]):
            raise UserError(
                f"anchors: {brief(level)}; every level must list the same number of [w, h, ...] in "
                f"pixels, at most {MAX_NUMBERS}"
            )
    return tuple(tuple(float(value) for value in level) for level in anchors)


def _is_level(level: Any) -> bool:
    return (
        isinstance(level, Sequence)
        and 0 < len(level) <= MAX_NUMBERS
        and len(level) % 2 == 0
        # Models whose anchors were never fitted have sides of 0.
        and all(isinstance(value, (int, float)) and 0 <= value <= MAX_SIDE for value in level)
    )


def unfitted_anchors(number: int, levels: int) -> tuple[tuple[float, ...], ...]:
    """Return placeholder anchors for `anchors: NUMBER` until they are fitted to a dataset.

    The sides are 0, 1, 2, ... pixels on each level, as in the public models.
    """
    return (tuple(map(float, range(2 * number))),) * levels


def anchors_in_cells(anchors: Sequence[Sequence[float]], strides: Sequence[int]) -> np.ndarray:
    """Convert anchors from pixels, [w, h, ...] per level, to (levels, A, 2) float32 in cells."""
    pixels = np.asarray(anchors, np.float32).reshape(len(anchors), -1, 2)
    return pixels / np.asarray(strides, np.float32).reshape(-1, 1, 1)
