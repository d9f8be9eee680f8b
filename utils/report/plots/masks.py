"""The pixels of objects on the tiles of a plot, below boxes and names.

Before: a batch's targets; what a validation found. After: `images.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from utils.data.loading.batch import TargetMasks
from utils.data.sources.samples import Sample
from utils.detections import GroundTruth, Segmentations
from utils.drawing.masks import draw_masks
from utils.masks.runs import areas, mask_of_runs, runs_of_mask
from utils.ragged import Ragged


def draw_objects(tile: np.ndarray, objects: Segmentations | GroundTruth, sample: Sample) -> None:
    """Draw the masks of an image on its tile (H, W, 3) uint8 RGB, the smaller ones on top."""
    assert objects.masks is not None
    rows = objects.masks.rows()
    order = np.argsort(areas(objects.masks), kind="stable")
    size = sample.height, sample.width
    masks = (mask_of_runs(rows[index], size) for index in order.tolist())
    _draw(tile, masks, objects.class_index[order])


def draw_targets(tile: np.ndarray, masks: TargetMasks, class_index: np.ndarray) -> None:
    """Draw the masks of some objects of a batch, all of one image, on its tile."""
    places = zip(masks.map_index.tolist(), masks.value.tolist(), strict=True)
    _draw(tile, (masks.maps[place] == value for place, value in places), class_index)


def _draw(tile: np.ndarray, masks: Iterator[np.ndarray], class_index: np.ndarray) -> None:
    size = tile.shape[0], tile.shape[1]
    draw_masks(
        tile, Ragged.of([runs_of_mask(_fit(x, size)) for x in masks], np.uint32), class_index
    )


def _fit(mask: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Return a mask (h, w) at another size, by the value at the centre of each pixel."""
    rows, columns = (
        ((np.arange(side) + 0.5) * (old / side)).astype(np.int64)
        for old, side in zip(mask.shape, size, strict=True)
    )
    return mask[np.ix_(rows, columns)]
