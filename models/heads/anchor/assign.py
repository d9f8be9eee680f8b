"""Who matches whom: the targets of a batch -> for each level the cells that must predict them.

Before: the `Targets` of a batch from `utils/data/loading/loader.py`. After: `loss.py`.
Assignment depends on targets and anchors alone, never on predictions. It is therefore computed
in NumPy on the host, where the targets are, so both backends get the same one, and it needs
nothing back from the device. Source: the public YOLOv5 recipe, by its stored results.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from utils.data.loading.batch import Targets

# In cells: the cell that holds the centre, then its neighbours to the left, above, to the right
# and below. A neighbour is used when the centre lies in the half of its cell next to it.
NEIGHBOUR_SHIFTS = np.array([[0, 0], [0.5, 0], [0, 0.5], [-0.5, 0], [0, -0.5]], np.float32)
NEIGHBOUR_REACH = 0.5


class Assignment(NamedTuple):
    """The P positives of one level; boxes and anchors in cells of that level."""

    image_index: np.ndarray  # (P,) int64
    anchor_index: np.ndarray  # (P,) int64
    row: np.ndarray  # (P,) int64
    column: np.ndarray  # (P,) int64
    boxes_cxcywh: np.ndarray  # (P, 4) float32, centre relative to the cell's corner
    anchors_wh: np.ndarray  # (P, 2) float32
    class_index: np.ndarray  # (P,) int64


def assign_targets(
    targets: Targets,
    anchors: np.ndarray,
    grids: Sequence[tuple[int, int]],
    max_side_ratio: float,
) -> list[Assignment]:
    """Match every target with the anchors of like size, in its cell and up to two neighbours.

    Args:
        targets: T targets of a batch.
        anchors: (levels, A, 2) width and height in cells of the level.
        grids: (height, width) of each level in cells.
        max_side_ratio: an anchor matches if neither side differs by this factor or more.

    Returns:
        One assignment a level; a target may occur several times in it, or never.
    """
    return [
        _assign_level(targets, level_anchors.astype(np.float32), grid, max_side_ratio)
        for level_anchors, grid in zip(anchors, grids, strict=True)
    ]


def _assign_level(
    targets: Targets, anchors: np.ndarray, grid: tuple[int, int], max_side_ratio: float
) -> Assignment:
    height, width = grid
    cells = np.array([width, height, width, height], np.float32)
    boxes = targets.boxes_cxcywh_norm.astype(np.float32) * cells
    anchor_index, target_index = _match_anchors(boxes[:, 2:], anchors, max_side_ratio)
    boxes = boxes[target_index]
    shift_index, match_index = _choose_cells(boxes[:, :2], cells[:2])
    anchor_index, target_index = anchor_index[match_index], target_index[match_index]
    boxes = boxes[match_index]
    corner = np.trunc(boxes[:, :2] - NEIGHBOUR_SHIFTS[shift_index])
    corner = np.clip(corner, 0, cells[:2] - 1)
    return Assignment(
        image_index=targets.image_index[target_index],
        anchor_index=anchor_index,
        row=corner[:, 1].astype(np.int64),
        column=corner[:, 0].astype(np.int64),
        boxes_cxcywh=np.concatenate([boxes[:, :2] - corner, boxes[:, 2:]], axis=1),
        anchors_wh=anchors[anchor_index],
        class_index=targets.class_index[target_index],
    )


def _match_anchors(
    sizes_wh: np.ndarray, anchors: np.ndarray, max_side_ratio: float
) -> tuple[np.ndarray, np.ndarray]:
    """(T, 2) and (A, 2) in cells -> indices (anchor, target) of like size, anchor by anchor."""
    ratio = sizes_wh[None] / anchors[:, None]
    with np.errstate(divide="ignore"):  # a side of zero has an infinite ratio: no match
        worst = np.maximum(ratio, 1 / ratio).max(axis=2)
    anchor_index, target_index = np.nonzero(worst < max_side_ratio)
    return anchor_index, target_index


def _choose_cells(centres: np.ndarray, cells: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(K, 2) centres in cells -> indices (shift, centre), shift by shift.

    A neighbour counts only if it lies inside the grid of `cells` (width, height).
    """
    from_far = cells - centres
    near = (centres % 1 < NEIGHBOUR_REACH) & (centres > 1)
    far = (from_far % 1 < NEIGHBOUR_REACH) & (from_far > 1)
    own = np.ones((1, len(centres)), bool)
    shift_index, centre_index = np.nonzero(np.concatenate([own, near.T, far.T]))
    return shift_index, centre_index
