"""Prototypes and the coefficients of objects -> their masks, each computed only in its box.

A mask is where the sigmoid of the sum of prototypes, enlarged by bilinear interpolation, is above a
half. Source: YOLACT, Bolya et al. 2019, arXiv:1904.02689. Axis: M prototypes.
"""

import numpy as np

from duet.utils.data.image.letterbox import Letterbox
from duet.utils.data.masks.runs import Window, runs_of_window
from duet.utils.geometry.detections import Ragged

THRESHOLD = 0.5
_BLOCK = 1 << 18  # pixels that are enlarged at a time: they stay in the processor's cache


def native_runs(
    prototypes: np.ndarray, coefficients: np.ndarray, boxes_xyxy: np.ndarray, letterbox: Letterbox
) -> Ragged:
    """Return the masks of an image in its own pixels, as K rows of run lengths, uint32.

    Args:
        prototypes: (M, h, w) float32, over the network's input.
        coefficients: (K, M) float32.
        boxes_xyxy: (K, 4), pixels of the image; no mask goes beyond its box.
    """
    size = letterbox.original_size
    enlarged = _Enlarged(_of_image(prototypes, letterbox), size)
    runs = []
    for row, (rows, columns) in zip(coefficients, _inside(boxes_xyxy, size), strict=True):
        window = Window(rows.start, columns.start, enlarged.mask(row, rows, columns))
        runs.append(runs_of_window(window, size))
    return Ragged.of(runs, np.uint32)


def prototype_masks(
    prototypes: np.ndarray, coefficients: np.ndarray, boxes_xyxy: np.ndarray
) -> np.ndarray:
    """Return the masks at the size of the prototypes, (K, h, w) bool; arguments as above."""
    masks = np.zeros((len(boxes_xyxy), *prototypes.shape[1:]), bool)
    windows = _inside(boxes_xyxy, prototypes.shape[1:])
    for mask, row, (rows, columns) in zip(masks, coefficients, windows, strict=True):
        mask[rows, columns] = _scores(prototypes[:, rows, columns], row) > THRESHOLD
    return masks


def _of_image(maps: np.ndarray, letterbox: Letterbox) -> np.ndarray:
    """Return the part of maps (N, h, w) over an input that lies over the image.

    Edges are rounded down to whole pixels, as in the public YOLOv5.
    """
    top, left = letterbox.padding
    bottom, right = (x + y for x, y in zip(letterbox.padding, letterbox.resized_size, strict=True))
    height, width = maps.shape[1:]
    rows = _whole(top, bottom, height, letterbox.input_size[0])
    return np.ascontiguousarray(maps[:, rows, _whole(left, right, width, letterbox.input_size[1])])


def _whole(first: int, end: int, side: int, input_side: int) -> slice:
    start = min(first * side // input_side, side - 1)
    return slice(start, max(end * side // input_side, start + 1))


def _inside(boxes_xyxy: np.ndarray, size: tuple[int, int]) -> list[tuple[slice, slice]]:
    """Return the rows and columns from the first edges of boxes to before their last ones."""
    limits = (*size[::-1], *size[::-1])
    edges = np.ceil(np.nan_to_num(boxes_xyxy)).clip(0, limits).astype(np.int64).tolist()
    return [
        (slice(top, max(bottom, top)), slice(left, max(right, left)))
        for left, top, right, bottom in edges
    ]


def _scores(prototypes: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
    """Return the sigmoid of the sum of prototypes (M, h, w), (h, w) float32."""
    sums = coefficients @ prototypes.reshape(len(prototypes), -1)
    with np.errstate(over="ignore"):  # exp of a large number is infinite, its score 0
        return (1 / (1 + np.exp(-sums))).reshape(prototypes.shape[1:])


class _Enlarged:
    """Masks of an image as they are at a size (height, width).

    prototypes: (M, h, w) float32.
    """

    def __init__(self, prototypes: np.ndarray, size: tuple[int, int]):
        self._prototypes = prototypes
        sides = zip(prototypes.shape[1:], size, strict=True)
        self._rows, self._columns = (_neighbours(*pair) for pair in sides)

    def mask(self, coefficients: np.ndarray, rows: slice, columns: slice) -> np.ndarray:
        """Return the part (h, w) bool of a mask, rows by columns of the size."""
        upper, lower, *parts_y = (x[rows] for x in self._rows)
        left, right, *parts_x = (x[columns] for x in self._columns)
        if not (len(upper) and len(left)):
            return np.zeros((len(upper), len(left)), bool)
        top, start = upper[0], left[0]
        seen = self._prototypes[:, top : lower[-1] + 1, start : right[-1] + 1]
        low = _scores(seen, coefficients)
        wide = low.take(left - start, axis=1) * parts_x[0]
        wide += low.take(right - start, axis=1) * parts_x[1]
        pixels = np.empty((len(upper), len(left)), bool)
        step = max(1, _BLOCK // len(left))
        for first in range(0, len(upper), step):
            block = slice(first, first + step)
            value = wide.take(upper[block] - top, axis=0)
            value *= parts_y[0][block, None]
            below = wide.take(lower[block] - top, axis=0)
            below *= parts_y[1][block, None]
            value += below
            np.greater(value, THRESHOLD, out=pixels[block])
        return pixels


def _neighbours(side: int, enlarged: int) -> tuple[np.ndarray, ...]:
    """Return the two neighbours of each pixel of an enlarged side, and their float32 weights."""
    at = (np.arange(enlarged) + 0.5) * (side / enlarged) - 0.5
    at = at.clip(0, side - 1).astype(np.float32)
    before = np.floor(at).astype(np.int64)
    part = at - before.astype(np.float32)
    return before, np.minimum(before + 1, side - 1), 1 - part, part
