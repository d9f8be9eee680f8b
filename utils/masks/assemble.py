"""Prototypes and the coefficients of objects -> their masks, each computed in its box alone.

Before: the mask head. After: `utils/evaluation`, results. A mask is where the sigmoid of the sum
of prototypes, enlarged by bilinear interpolation, is above a half. Source: YOLACT, Bolya et al.
2019, arXiv:1904.02689. Axis: M prototypes.
"""

from __future__ import annotations

from collections.abc import Iterator

import cv2
import numpy as np

from utils.data.image.letterbox import Letterbox
from utils.masks.runs import runs_of_window
from utils.masks.window import Window
from utils.ragged import Ragged

THRESHOLD = 0.5
_BLOCK = 1 << 18  # pixels that are enlarged at a time: they stay in the processor's cache


def native_windows(
    prototypes: np.ndarray, coefficients: np.ndarray, boxes_xyxy: np.ndarray, letterbox: Letterbox
) -> Iterator[Window]:
    """Yield the masks of an image in its own pixels, one at a time, as far as their boxes go.

    Args:
        prototypes: (M, h, w) float32, over the network's input.
        coefficients: (K, M) float32.
        boxes_xyxy: (K, 4), pixels of the image.
        letterbox: where the image lies in the input.
    """
    image = _of_image(prototypes, letterbox)
    for row, box in zip(coefficients, boxes_xyxy, strict=True):
        rows, columns = _inside(box, letterbox.original_size)
        pixels = _enlarge(image, row, letterbox.original_size, rows, columns)
        yield Window(rows.start, columns.start, pixels)


def native_masks(
    prototypes: np.ndarray, coefficients: np.ndarray, boxes_xyxy: np.ndarray, letterbox: Letterbox
) -> Iterator[np.ndarray]:
    """Yield each mask of `native_windows` over the whole image, (H, W) bool."""
    for top, left, pixels in native_windows(prototypes, coefficients, boxes_xyxy, letterbox):
        mask = np.zeros(letterbox.original_size, bool)
        mask[top : top + pixels.shape[0], left : left + pixels.shape[1]] = pixels
        yield mask


def native_runs(
    prototypes: np.ndarray, coefficients: np.ndarray, boxes_xyxy: np.ndarray, letterbox: Letterbox
) -> Ragged:
    """Return the masks of `native_windows` as K rows of run lengths, uint32."""
    windows = native_windows(prototypes, coefficients, boxes_xyxy, letterbox)
    size = letterbox.original_size
    rows = [runs_of_window(pixels, (top, left), size) for top, left, pixels in windows]
    return Ragged.of(rows, np.uint32)


def masks_at(
    prototypes: np.ndarray,
    coefficients: np.ndarray,
    boxes: np.ndarray,
    size: tuple[int, int],
    crop_first: bool,
) -> np.ndarray:
    """Return the masks of an input at any size, (K, h, w) bool.

    Args:
        prototypes: (M, H, W) float32.
        coefficients: (K, M) float32.
        boxes: (K, 4) xyxy, pixels of `size`.
        size: (h, w) of the masks; with that of the prototypes nothing is enlarged.
        crop_first: the box cuts the prototypes and not what they are enlarged to: its border is
            as soft as theirs then.
    """
    masks = np.zeros((len(boxes), *size), bool)
    for mask, row, box in zip(masks, coefficients, boxes, strict=True):
        if crop_first:
            low = _cropped(prototypes, row, box, size)
            mask[:] = cv2.resize(low, size[::-1], interpolation=cv2.INTER_LINEAR) > THRESHOLD
        else:
            rows, columns = _inside(box, size)
            mask[rows, columns] = _enlarge(prototypes, row, size, rows, columns)
    return masks


def to_image(mask: np.ndarray, letterbox: Letterbox) -> np.ndarray:
    """Bring a mask (h, w) bool over the network's input to the image's own size, (H, W) bool."""
    height, width = letterbox.original_size
    inside = _of_image(mask[None].astype(np.uint8), letterbox)[0]
    return cv2.resize(inside, (width, height), interpolation=cv2.INTER_LINEAR) > 0


def _of_image(maps: np.ndarray, letterbox: Letterbox) -> np.ndarray:
    """Return the part of maps (N, h, w) over an input that lies over the image.

    Where the image begins or ends within a pixel it is cut down to a whole one, as the public
    YOLOv5 does.
    """
    top, left = letterbox.padding
    bottom, right = (x + y for x, y in zip(letterbox.padding, letterbox.resized_size, strict=True))
    height, width = maps.shape[1:]
    rows = _whole(top, bottom, height, letterbox.input_size[0])
    return np.ascontiguousarray(maps[:, rows, _whole(left, right, width, letterbox.input_size[1])])


def _whole(first: int, end: int, side: int, input_side: int) -> slice:
    start = min(first * side // input_side, side - 1)
    return slice(start, max(end * side // input_side, start + 1))


def _inside(box: np.ndarray, size: tuple[int, int]) -> tuple[slice, slice]:
    """Return the rows and columns from a box's first edges to before its last ones."""
    left, top, right, bottom = np.ceil(np.nan_to_num(box)).clip(0, (*size[::-1], *size[::-1]))
    return slice(int(top), max(int(bottom), int(top))), slice(int(left), max(int(right), int(left)))


def _scores(prototypes: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
    """Return the sigmoid of the sum of prototypes (M, h, w), (h, w) float32."""
    sums = coefficients @ prototypes.reshape(len(prototypes), -1)
    with np.errstate(over="ignore"):  # exp of a large number is infinite, its score 0
        return (1 / (1 + np.exp(-sums))).reshape(prototypes.shape[1:])


def _cropped(
    prototypes: np.ndarray, coefficients: np.ndarray, box: np.ndarray, size: tuple[int, int]
) -> np.ndarray:
    """Return the scores in a box, 0 around it, (H, W) float32."""
    (height, width), (out_height, out_width) = prototypes.shape[1:], size
    scale = np.array((width / out_width, height / out_height) * 2, box.dtype)
    rows, columns = _inside(box * scale, (height, width))
    low = np.zeros((height, width), np.float32)
    low[rows, columns] = _scores(prototypes[:, rows, columns], coefficients)
    return low


def _enlarge(
    prototypes: np.ndarray,
    coefficients: np.ndarray,
    size: tuple[int, int],
    rows: slice,
    columns: slice,
) -> np.ndarray:
    """Return the part (h, w) bool of a mask that is enlarged to a size, rows by columns of it."""
    upper, lower, part_y = _neighbours(prototypes.shape[1], size[0], rows)
    left, right, part_x = _neighbours(prototypes.shape[2], size[1], columns)
    pixels = np.zeros((len(upper), len(left)), bool)
    if not pixels.size:
        return pixels
    top, start = upper[0], left[0]
    seen = prototypes[:, top : lower[-1] + 1, start : right[-1] + 1]
    low = _scores(seen, coefficients)
    wide = low[:, left - start] * (1 - part_x) + low[:, right - start] * part_x
    step = max(1, _BLOCK // len(left))
    for first in range(0, len(upper), step):
        block = slice(first, first + step)
        part = part_y[block, None]
        value = wide[upper[block] - top] * (1 - part) + wide[lower[block] - top] * part
        pixels[block] = value > THRESHOLD
    return pixels


def _neighbours(side: int, enlarged: int, chosen: slice) -> tuple[np.ndarray, ...]:
    """Return between which two pixels each chosen one of an enlarged side lies, and how far.

    In float32, as OpenCV's interpolation.
    """
    at = (np.arange(chosen.start, chosen.stop) + 0.5) * (side / enlarged) - 0.5
    at = at.clip(0, side - 1).astype(np.float32)
    before = np.floor(at).astype(np.int64)
    return before, np.minimum(before + 1, side - 1), at - before.astype(np.float32)
