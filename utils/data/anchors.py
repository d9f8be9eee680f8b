"""The fit of anchors to box sizes, and anchors fitted by k-means and an evolution.

Every number comes from sums, products and `Generator.random`, so that all backends, ranks and
versions of NumPy find the same anchors. Sources: Lloyd 1982, doi:10.1109/TIT.1982.1056489; clusters
as anchors: Redmon and Farhadi 2017, arXiv:1612.08242, section 2.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from duet.utils.data.randomness import Stream, generator_of, nearly_normal
from duet.utils.data.sources.samples import Sample, table_of

TINY = 1e-9  # pixels; anchors that were never fitted are 0 wide
MAX_SIZES = 10_000  # drawn from more: what anchors are fitted to, so that the time is bounded
PIECE = 1 << 16  # boxes compared with anchors at a time: Objects365 has 27 million
SMALLEST_SIDE = 2.0  # pixels, of anchors and of boxes that are worth one
STARTS, ROUNDS = 10, 100  # k-means: runs, and rounds per run
GENERATIONS = 2000  # 0.4 s with 9 anchors and 4,000 boxes
LARGEST_STEP = 0.2  # standard deviation of a change as a part of a side, at most
DIGITS = 2  # decimals kept of anchor sizes, pixels


class Fit(NamedTuple):
    """How well anchors fit boxes: both sides within a factor, the threshold, of each other."""

    best_possible_recall: float  # share of the boxes that some anchor can predict
    anchors_per_target: float  # anchors that can predict a box, on average
    fitness: float  # mean likeness of a box and its best anchor; 0 if that cannot predict it


def label_sizes(samples: Sequence[Sample], image_size: int) -> np.ndarray:
    """Return the (width, height) of all boxes, (N, 2) float64, in images of this long side."""
    table = table_of(samples)
    scale = image_size / table.sizes.max(axis=1, keepdims=True)
    pixels_wh = table.sizes[:, ::-1] * scale
    # float32 like the labels, so that 64 px stays exactly four times an anchor's 16.
    of_objects = pixels_wh.astype(np.float32)[table.image_of_object]
    return (table.boxes_cxcywh_norm[:, 2:] * of_objects).astype(np.float64)


def measure_fit(sizes_wh: np.ndarray, anchors_wh: np.ndarray, threshold: float) -> Fit:
    """Measure how well anchors (A, 2) fit boxes (N, 2) of the same unit; all 0 when N is 0.

    threshold: the hyper-parameter anchor_t, above 1.
    """
    best, num_pairs, number = np.zeros(len(sizes_wh)), 0, max(len(sizes_wh), 1)
    for start in range(0, len(sizes_wh), PIECE):
        rows = slice(start, start + PIECE)
        likeness = likeness_of(sizes_wh[rows], anchors_wh)
        best[rows] = likeness.max(axis=1)
        num_pairs += np.count_nonzero(likeness > 1 / threshold)
    num_found = np.count_nonzero(best > 1 / threshold)
    return Fit(num_found / number, num_pairs / number, fitness_of(best, threshold) / number)


def likeness_of(sizes_wh: np.ndarray, anchors_wh: np.ndarray) -> np.ndarray:
    """Return the smaller ratio of widths or heights, at most 1, of boxes to anchors, (N, A)."""
    ratios = []
    for axis in (0, 1):
        boxes, anchors = sizes_wh[:, axis, None], anchors_wh[:, axis]
        larger = np.maximum(np.maximum(boxes, anchors), TINY)
        ratios.append(np.minimum(boxes, anchors) / larger)
    return np.minimum(*ratios)


def fitness_of(best: np.ndarray, threshold: float) -> float:
    return float(best[best > 1 / threshold].sum())


def fit_anchors(sizes_wh: np.ndarray, number: int, threshold: float, seed: int) -> np.ndarray:
    """Return anchors that fit boxes, (number, 2) float64 pixels, from the smallest area up.

    The time is bounded beyond the first 10,000 boxes.

    Args:
        sizes_wh: (N, 2) of boxes, pixels; N from 1 up.
        threshold: the hyper-parameter anchor_t, above 1.
    """
    generator = generator_of(Stream.ANCHORS, seed)
    sizes = _chosen(sizes_wh, generator)
    start = _k_means(sizes, number, threshold, generator)
    anchors = np.round(_evolve(sizes, start, threshold, generator), DIGITS)
    return anchors[np.argsort(anchors.prod(axis=1), kind="stable")]


def _chosen(sizes_wh: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Return the sizes to fit to: at least 2 pixels wide or high, if any are, and not too many."""
    worth = sizes_wh[(sizes_wh >= SMALLEST_SIDE).any(axis=1)]
    sizes = worth if len(worth) else sizes_wh
    if len(sizes) > MAX_SIZES:
        sizes = sizes[(generator.random(MAX_SIZES) * len(sizes)).astype(np.int64)]
    return np.maximum(sizes, SMALLEST_SIDE)


def _k_means(
    sizes: np.ndarray, number: int, threshold: float, generator: np.random.Generator
) -> np.ndarray:
    """Return the centres of the fittest of some clusterings, (number, 2).

    Sizes are divided by their standard deviation first. With fewer different sizes than centres,
    all of them are centres, some repeatedly.
    """
    spread = sizes.std(axis=0)
    unit = np.where(spread > 0, spread, 1.0)
    points = sizes / unit
    different = np.unique(points, axis=0)
    if len(different) <= number:
        return np.resize(different, (number, 2)) * unit
    found = []
    for _ in range(STARTS):
        first = np.argsort(generator.random(len(different)), kind="stable")[:number]
        found.append(_cluster(points, different[first]) * unit)
    return max(found, key=lambda anchors: measure_fit(sizes, anchors, threshold).fitness)


def _cluster(points: np.ndarray, centres: np.ndarray) -> np.ndarray:
    for _ in range(ROUNDS):
        squares = sum((points[:, axis, None] - centres[:, axis]) ** 2 for axis in (0, 1))
        nearest = squares.argmin(axis=1)
        counts = np.bincount(nearest, minlength=len(centres))[:, None]
        sums = [np.bincount(nearest, points[:, axis], len(centres)) for axis in (0, 1)]
        moved = np.where(counts > 0, np.stack(sums, axis=1) / np.maximum(counts, 1), centres)
        if np.array_equal(moved, centres):
            break
        centres = moved
    return centres


def _evolve(
    sizes: np.ndarray, anchors: np.ndarray, threshold: float, generator: np.random.Generator
) -> np.ndarray:
    """Change one anchor after the other at random; keep each change that raises the fitness."""
    anchors, largest = anchors.copy(), max(float(sizes.max()), SMALLEST_SIDE)
    likeness = likeness_of(sizes, anchors)
    best = fitness_of(likeness.max(axis=1), threshold)
    for number in range(GENERATIONS):
        index = number % len(anchors)
        step, *draws = generator.random(9).tolist()
        normal = np.array([nearly_normal(draws[:4]), nearly_normal(draws[4:])])
        changed = np.clip(
            anchors[index] * (1 + LARGEST_STEP * step * normal), SMALLEST_SIDE, largest
        )
        own = likeness_of(sizes, changed[None])[:, 0]
        others = np.delete(likeness, index, axis=1).max(axis=1, initial=0)
        fitness = fitness_of(np.maximum(others, own), threshold)
        if fitness > best:
            best, anchors[index], likeness[:, index] = fitness, changed, own
    return anchors
