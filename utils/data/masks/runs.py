"""COCO's run lengths: the pixels of an object as the lengths of its runs, column by column.

The first run is background; it has length 0 where the first pixel is the object's. Nothing here
decodes a mask to compare it. Source: the COCO API (Lin et al. 2014, arXiv:1405.0312), whose masks
these are number by number.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import cv2
import numpy as np
from pycocotools import mask as coco_mask

from duet.utils.ragged import Ragged

# pycocotools takes five steps a pixel, of up to 16 bytes each. One at a time, in 32-bit integers.
LONGEST_OUTLINE = 1 << 23
_FAR = 1 << 27
_BITS, _MORE, _OFFSET = 5, 0x20, 48  # encoding of a character
_MAX_CHARACTERS = 7  # for a number below 2**32, with its sign
_END = 2**32


class Window(NamedTuple):
    """A part of a mask, outside of which it is empty."""

    top: int
    left: int
    pixels: np.ndarray  # (h, w) bool


def runs_of_mask(mask: np.ndarray) -> np.ndarray:
    """Return the runs (N,) uint32 of a mask (H, W) bool."""
    return runs_of_windows([Window(0, 0, mask)], mask.shape).values


def runs_of_windows(windows: Iterable[Window], size: tuple[int, ...]) -> Ragged:
    """Return the runs of masks of which only a window is given, K rows of uint32.

    size: (height, width) of the masks.
    """
    return Ragged.of([_runs_of_window(window, size) for window in windows], np.uint32)


def _runs_of_window(window: Window, size: tuple[int, ...]) -> np.ndarray:
    top, left, pixels = window
    if not pixels.size:
        return _runs_between(np.zeros(0, np.int64), size[0] * size[1])
    is_object: np.ndarray = np.ascontiguousarray(pixels).view(np.uint8)
    if len(pixels) < size[0]:  # what reaches the end of a column goes on in none
        is_object = cv2.copyMakeBorder(is_object, 0, 1, 0, 0, cv2.BORDER_CONSTANT)
    flat = cv2.transpose(is_object).reshape(-1)  # in half the time of NumPy
    is_change = np.empty(len(flat) + 1, bool)
    is_change[0], is_change[-1] = flat[0], flat[-1]
    np.not_equal(flat[1:], flat[:-1], out=is_change[1:-1])
    column, row = np.divmod(is_change.nonzero()[0], len(is_object))
    return _runs_between((left + column) * size[0] + top + row, size[0] * size[1])


def _runs_between(changes: np.ndarray, num_pixels: int) -> np.ndarray:
    """Return the runs between places of changes, ascending."""
    within = changes[changes < num_pixels]
    return np.diff(within, prepend=0, append=num_pixels).astype(np.uint32)


def mask_of_runs(runs: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Return the mask (H, W) bool of runs (N,).

    Raises:
        ValueError: the runs are not of a mask of this size.
    """
    height, width = size
    total = int(runs.sum(dtype=np.int64))
    if total != height * width:
        raise ValueError(f"runs over {total:,} pixels; {width}x{height} are needed")
    is_object = np.arange(len(runs)) % 2 == 1
    return np.repeat(is_object, runs).reshape(width, height).T


def areas(masks: Ragged) -> np.ndarray:
    """Return the number of pixels of each of K objects, (K,) float64."""
    starts, ends, counts = _intervals(masks)
    return np.bincount(np.repeat(np.arange(len(counts)), counts), ends - starts, len(counts))


def bounds(runs: np.ndarray, height: int) -> tuple[int, int, int, int]:
    """Return left, top, right, bottom around an object in a mask of this height; 0 of none."""
    starts, ends, _ = _intervals(Ragged.of([runs], np.uint32))
    if not len(starts):
        return 0, 0, 0, 0
    first, top = np.divmod(starts, height)
    last, bottom = np.divmod(ends - 1, height)
    whole = (last > first).any()  # a run over the end of a column
    low, high = (0, height) if whole else (int(top.min()), int(bottom.max()) + 1)
    return int(first[0]), low, int(last[-1]) + 1, high


def _intervals(masks: Ragged) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return where the runs of K objects begin and end, each in its own mask, int64, without empty
    ones; and how many of them each object has, (K,) int64.
    """
    owner = np.repeat(np.arange(masks.num_rows), masks.lengths)
    first = np.cumsum(masks.lengths) - masks.lengths
    ends = np.concatenate(([0], np.cumsum(masks.values, dtype=np.int64)))
    is_object = (np.arange(len(owner)) - first[owner]) % 2 == 1
    filled = np.flatnonzero(is_object & (masks.values > 0))
    owner = owner[filled]
    before = ends[first[owner]]
    counts = np.bincount(owner, minlength=masks.num_rows)
    return ends[filled] - before, ends[filled + 1] - before, counts


def iou(found: Ragged, truth: Ragged, is_crowd: np.ndarray | None = None) -> np.ndarray:
    """Return the intersection over union of each mask found with each labelled one.

    Args:
        found: K rows of runs.
        truth: M rows of runs over images of the same size.
        is_crowd: (M,) bool, masks of many objects: with these it is the fraction of the found
            mask that is covered, COCO's rule.

    Returns:
        (K, M) float64 in [0, 1]; 0 if they do not overlap.
    """
    overlaps = np.zeros((found.num_rows, truth.num_rows))
    starts, ends, counts = _intervals(found)
    owner = np.repeat(np.arange(found.num_rows), counts)
    found_areas, labelled_areas = areas(found), areas(truth)
    for index, row in enumerate(truth.rows()):
        first, last, _ = _intervals(Ragged.of([row], np.uint32))
        if not len(first):
            continue
        # The pixels of the labelled mask before each place where it begins or ends.
        places = np.stack((first, last), axis=1).reshape(-1)
        before = np.cumsum(np.diff(places, prepend=0) * (np.arange(len(places)) % 2))
        covered = np.interp(ends, places, before) - np.interp(starts, places, before)
        overlap = np.bincount(owner, covered, found.num_rows)
        is_one = is_crowd is None or not is_crowd[index]
        union = found_areas + (labelled_areas[index] - overlap if is_one else 0)
        np.divide(overlap, union, out=overlaps[:, index], where=overlap > 0)
    return overlaps


def window_of_runs(runs: np.ndarray, size: tuple[int, int]) -> Window:
    """Return the smallest window around an object; one without pixels of an empty mask.

    Args:
        runs: (N,) of a mask of this size.
        size: (height, width).
    """
    height, _ = size
    left, top, right, bottom = bounds(runs, height)
    ends = (np.cumsum(runs, dtype=np.int64) - left * height).clip(0, (right - left) * height)
    is_object = np.arange(len(runs)) % 2 == 1
    columns = np.repeat(is_object, np.diff(ends, prepend=0)).reshape(right - left, height)
    return Window(top, left, columns.T[top:bottom])


def outline_of_runs(runs: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Return `largest_outline` of a mask of this size, (N, 2) float32 x and y in its pixels."""
    top, left, pixels = window_of_runs(runs, size)
    return largest_outline(pixels) + np.array((left, top), np.float32)


def largest_outline(mask: np.ndarray) -> np.ndarray:
    """Return the outer border of the piece with the most points, (N, 2) float32 x and y.

    Corners are pixels of the piece; straight parts between them are left out, and holes are not
    seen. N is 0 of an empty mask.

    mask: (H, W) bool.
    """
    pixels = np.ascontiguousarray(mask, np.uint8)
    borders, _ = cv2.findContours(pixels, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
    pieces = [border.reshape(-1, 2).astype(np.float32) for border in borders]
    return max(pieces, key=len, default=np.zeros((0, 2), np.float32))


def runs_of_polygons(outlines: Sequence[np.ndarray], size: tuple[int, int]) -> np.ndarray:
    """Return the runs (N,) uint32 of all pixels in any of some outlines.

    Args:
        outlines: each (K, 2) x and y in pixels; where one crosses itself, or lies over another
            part of itself, that is outside again. Fewer than three points enclose nothing.
        size: (height, width) of the mask.

    Raises:
        ValueError: a coordinate is no number, or an outline is longer than `LONGEST_OUTLINE`:
            pycocotools would write outside of its memory, or fill all of it.
    """
    # Clipping moves only what lies far outside of the image, where it has no pixels.
    points = [np.asarray(o, np.float64).clip(-_FAR, _FAR) for o in outlines if len(o) > 2]
    for outline in points:
        length = np.abs(np.diff(outline, axis=0, append=outline[:1])).max(axis=1).sum()
        if not length <= LONGEST_OUTLINE:  # NaN is not
            raise ValueError(f"an outline of {length:,.0f} px; at most {LONGEST_OUTLINE:,} px")
    if not points:
        return np.array([size[0] * size[1]], np.uint32)
    coded = coco_mask.frPyObjects([outline.reshape(-1) for outline in points], *size)
    whole = coded[0] if len(coded) == 1 else coco_mask.merge(coded)
    return from_text(whole["counts"].decode("ascii"))


def to_text(runs: np.ndarray) -> str:
    """Return COCO's text form of runs: numbers in characters of five bits each.

    From the fourth on a number is the difference to the second last.
    """
    numbers = runs.astype(np.int64)
    numbers[3:] -= runs[1:-2].astype(np.int64)
    characters = np.zeros((len(numbers), _MAX_CHARACTERS), np.uint8)
    is_open = np.ones(len(numbers), bool)
    for place in range(_MAX_CHARACTERS):
        part = numbers & 0x1F
        numbers = numbers >> _BITS
        goes_on = np.where(part & 0x10, numbers != -1, numbers != 0)
        character = part + np.where(goes_on, _MORE, 0) + _OFFSET
        characters[is_open, place] = character[is_open]
        is_open = is_open & goes_on
    return characters[characters > 0].tobytes().decode("ascii")


def from_text(text: str) -> np.ndarray:
    """Return the runs (N,) uint32 of their text form.

    Raises:
        ValueError: it is not valid; the message gives the reason.
    """
    content = np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8)
    characters = content.astype(np.int64) - _OFFSET
    is_known = (characters >= 0) & (characters < 2 * _MORE)
    if not len(characters) or not is_known.all() or characters[-1] & _MORE:
        raise ValueError("no text form of run lengths")
    ends = np.flatnonzero(~characters & _MORE)
    starts = np.concatenate(([0], ends[:-1] + 1))
    lengths = ends - starts + 1
    if (lengths > _MAX_CHARACTERS).any():
        raise ValueError("a run length of too many characters")
    place = np.arange(len(characters)) - np.repeat(starts, lengths)
    parts = (characters & 0x1F) << (_BITS * place)
    numbers = np.add.reduceat(parts, starts)
    numbers -= np.where(characters[ends] & 0x10, 1 << (_BITS * lengths), 0)
    numbers[1::2] = np.cumsum(numbers[1::2])
    numbers[2::2] = np.cumsum(numbers[2::2])
    if ((numbers < 0) | (numbers >= _END)).any():
        raise ValueError("a run length below 0 or too large")
    return numbers.astype(np.uint32)
