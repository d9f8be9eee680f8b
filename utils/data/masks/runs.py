"""COCO's run lengths: the pixels of an object as the lengths of its runs, column by column.

The first run is background, with length 0 if the first pixel belongs to the object. Masks are
compared without decoding them. Source: the COCO API (Lin et al. 2014, arXiv:1405.0312), with equal
numbers.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import cv2
import numpy as np
from pycocotools import mask as coco_mask

from duet.utils.errors import brief
from duet.utils.geometry.boxes import join_parts
from duet.utils.geometry.detections import Ragged
from duet.utils.image_limits import MAX_SIDE

# pycocotools takes five steps per pixel, up to 16 bytes each, counted in 32-bit integers.
LONGEST_OUTLINE = 1 << 23
MAX_MASK_PIXELS = 1 << 27  # per mask in an annotation file
_FAR = 1 << 27
_BITS, _MORE, _OFFSET = 5, 0x20, 48  # encoding of a character
_MAX_CHARACTERS = 7  # for a number below 2**32, with its sign
_END = 2**32


class Window(NamedTuple):
    """A part of a mask, outside of which it is empty."""

    top: int
    left: int
    pixels: np.ndarray  # (h, w) bool or uint8

    def of(self, mask: np.ndarray) -> np.ndarray:
        height, width = self.pixels.shape
        return mask[self.top : self.top + height, self.left : self.left + width]


def runs_of_mask(mask: np.ndarray) -> np.ndarray:
    return runs_of_window(Window(0, 0, mask), mask.shape)


def runs_of_window(window: Window, size: tuple[int, ...]) -> np.ndarray:
    """Return the runs (N,) uint32 of a mask of (height, width) from its window."""
    top, left, pixels = window
    if not pixels.size:
        return _runs_between(np.zeros(0, np.int64), size[0] * size[1])
    is_object: np.ndarray = np.ascontiguousarray(pixels).view(np.uint8)
    if len(pixels) < size[0]:  # then no run continues in the next column
        is_object = cv2.copyMakeBorder(is_object, 0, 1, 0, 0, cv2.BORDER_CONSTANT)
    flat = cv2.transpose(is_object).reshape(-1)  # twice as fast as NumPy
    is_change = np.empty(len(flat) + 1, bool)
    is_change[0], is_change[-1] = flat[0], flat[-1]
    np.not_equal(flat[1:], flat[:-1], out=is_change[1:-1])
    column, row = np.divmod(is_change.nonzero()[0], len(is_object))
    return _runs_between((left + column) * size[0] + top + row, size[0] * size[1])


def _runs_between(changes: np.ndarray, num_pixels: int) -> np.ndarray:
    within = changes[changes < num_pixels]
    return np.diff(within, prepend=0, append=num_pixels).astype(np.uint32)


def mask_of_runs(runs: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Return the mask (H, W) bool of runs (N,); ValueError unless they fill it."""
    height, width = size
    total = int(runs.sum(dtype=np.int64))
    if total != height * width:
        raise ValueError(f"runs over {total:,} pixels; {width}x{height} are needed")
    is_object = np.arange(len(runs)) % 2 == 1
    return np.repeat(is_object, runs).reshape(width, height).T


def areas(masks: Ragged) -> np.ndarray:
    """Return the number of pixels of each of K objects, (K,) float64."""
    owner = np.repeat(np.arange(masks.num_rows), masks.lengths)
    first = np.cumsum(masks.lengths) - masks.lengths
    is_object = (np.arange(len(owner)) - first[owner]) % 2 == 1
    return np.bincount(owner[is_object], masks.values[is_object], masks.num_rows)


def iou(found: Ragged, truth: Ragged, is_crowd: np.ndarray | None = None) -> np.ndarray:
    """Return the intersection over union of K found with M labelled masks, (K, M) float64.

    is_crowd: (M,) bool, masks of many objects: the covered fraction of the found mask instead,
    COCO's rule.
    """
    if not (found.num_rows and truth.num_rows):
        return np.zeros((found.num_rows, truth.num_rows))
    # The size does not matter for an overlap: one column of all pixels.
    num_pixels = int(found.values[: found.lengths[0]].sum(dtype=np.int64))
    coded = [[_coded(row, (num_pixels, 1)) for row in masks.rows()] for masks in (found, truth)]
    crowds = np.zeros(truth.num_rows, np.uint8) if is_crowd is None else is_crowd
    overlaps: np.ndarray = coco_mask.iou(*coded, crowds)
    return overlaps


def _coded(runs: np.ndarray, size: tuple[int, int]) -> dict[str, Any]:
    coded: dict[str, object] = coco_mask.frPyObjects({"size": list(size), "counts": runs}, *size)
    return coded


def window_of_runs(runs: np.ndarray, size: tuple[int, int]) -> Window:
    """Return the smallest window around an object, no pixels for an empty mask (height, width)."""
    left, top, width, height = coco_mask.toBbox(_coded(runs, size)).astype(int).tolist()
    first, end = left * size[0], (left + width) * size[0]
    ends = np.cumsum(runs, dtype=np.int64).clip(first, end) - first
    is_object = np.arange(len(runs)) % 2 == 1
    columns = np.repeat(is_object, np.diff(ends, prepend=0)).reshape(width, size[0])
    return Window(top, left, columns.T[top : top + height])


def outline_of_runs(runs: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Return the outer border of the piece with the most points, (N, 2) float32 x and y.

    Corners are pixels of the piece; straight parts and holes are left out. N is 0 for an empty
    mask.
    """
    top, left, pixels = window_of_runs(runs, size)
    whole = np.ascontiguousarray(pixels, np.uint8)
    borders, _ = cv2.findContours(whole, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
    pieces = [border.reshape(-1, 2).astype(np.float32) for border in borders]
    largest = max(pieces, key=len, default=np.zeros((0, 2), np.float32))
    return largest + np.array((left, top), np.float32)


def whole_outline(runs: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Return the outline (K, 2) float64 of a mask, exactly along the edges of its pixels.

    Pieces and holes are joined; pixels that touch at a corner are one piece. K is 0 for an empty
    mask.
    """
    top, left, pixels = window_of_runs(runs, size)
    # A border runs through centres: doubled pixels put all corners of the edges on it.
    twice = pixels.repeat(2, axis=0).repeat(2, axis=1).view(np.uint8)
    borders, _ = cv2.findContours(twice, cv2.RETR_CCOMP, cv2.CHAIN_APPROX_SIMPLE)
    pieces = []
    for border in borders:
        corners = (border.reshape(-1, 2) + 1) // 2
        is_new = (corners != np.roll(corners, 1, axis=0)).any(axis=1)
        pieces.append(corners[is_new] + np.array((left, top), np.float64))
    return join_parts(pieces) if pieces else np.zeros((0, 2))


def runs_of_polygons(outlines: Sequence[np.ndarray], size: tuple[int, int]) -> np.ndarray:
    """Return the runs (N,) uint32 of all pixels inside any outline.

    Args:
        outlines: each (K, 2) x and y in pixels, by the even-odd rule; K below 3 encloses nothing.
        size: (height, width) of the mask.

    ValueError: a coordinate is no number, or an outline is longer than `LONGEST_OUTLINE`, with
    which pycocotools would write outside of its memory.
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
    text: str = _coded(runs, (1, 1))["counts"].decode("ascii")
    return text


def from_text(text: str) -> np.ndarray:
    """Return the runs (N,) uint32 of a text form; ValueError with the reason if it is invalid."""
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


def read_runs(segmentation: Mapping[str, object]) -> tuple[np.ndarray, tuple[int, int]]:
    """Return the runs (N,) uint32 and (height, width) of a mask in an annotation file.

    segmentation: {"size": [height, width], "counts": runs}, as numbers or as text.

    ValueError: the runs are damaged, or do not fill the size.
    """
    size = segmentation.get("size")
    sides = size if isinstance(size, list) and len(size) == 2 else [0]
    if not all(type(side) is int and 0 < side <= MAX_SIDE for side in sides):
        raise ValueError(f"a mask of size {brief(size)}; accepted: [height, width]")
    height, width = sides
    if height * width > MAX_MASK_PIXELS:
        raise ValueError(f"a mask of {width}x{height} px; at most {MAX_MASK_PIXELS:,} are read")
    counts = segmentation.get("counts")
    try:
        runs = from_text(counts).astype(np.int64) if isinstance(counts, str) else np.array(counts)
    except ValueError as error:
        raise ValueError(f"the runs of its mask are {brief(counts)}: {error!s:.100}") from error
    if not isinstance(counts, (str, list)) or runs.ndim != 1 or runs.dtype != np.int64:
        raise ValueError(f"the runs of its mask are {brief(counts)}")
    # The clipped sum stays far below 64 bits.
    if (runs < 0).any() or runs.clip(0, MAX_MASK_PIXELS + 1).sum() != height * width:
        raise ValueError(f"the runs of its mask do not fill {width}x{height} px")
    # pycocotools finds no box around runs of no pixel: the changes at both of their ends cancel.
    changes, times = np.unique(np.cumsum(runs), return_counts=True)
    return _runs_between(changes[times % 2 == 1], height * width), (height, width)
