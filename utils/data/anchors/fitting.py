"""Anchors fitted to the sizes of boxes: k-means, then an evolution by fitness.

Every number comes from sums, products and `Generator.random`, so that all backends, ranks and
versions of NumPy find the same anchors. Sources: Lloyd 1982, doi:10.1109/TIT.1982.1056489; clusters
as anchors: Redmon and Farhadi 2017, arXiv:1612.08242, section 2.
"""

from __future__ import annotations

import numpy as np

from utils.data.anchors.fit import fitness_of, likeness_of, measure_fit
from utils.data.randomness import anchor_generator, nearly_normal

MAX_SIZES = 10_000  # drawn from more: what anchors are fitted to, so that the time is bounded
SMALLEST_SIDE = 2.0  # pixels, of anchors and of boxes that are worth one
STARTS, ROUNDS = 10, 100  # of k-means
GENERATIONS = 2000  # 0.4 s with 9 anchors and 4,000 boxes
LARGEST_STEP = 0.2  # standard deviation of a change as a part of a side, at most
DIGITS = 2  # of pixels


def fit_anchors(sizes_wh: np.ndarray, number: int, threshold: float, seed: int) -> np.ndarray:
    """Return anchors that fit boxes, (number, 2) float64 pixels, from the smallest area up.

    The time is linear in the number of boxes, and bounded beyond the first 10,000.

    Args:
        sizes_wh: (N, 2) of boxes, pixels; N from 1 up.
        number: of anchors, from 1 up.
        threshold: the hyper-parameter anchor_t, above 1.
    """
    generator = anchor_generator(seed)
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
    """Move centres to the means of their points until none moves; return them."""
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
