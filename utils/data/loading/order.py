"""Which samples an epoch shows, in which order, and in which shape they form batches.

The order is a function of seed and epoch, and all epochs are equally long: learning rates and a
resumed run count by their length.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from duet.utils.data.image.letterbox import fit_long_side
from duet.utils.data.randomness import epoch_order, order_generator
from duet.utils.data.sources.samples import SampleTable


class Epoch(NamedTuple):
    """An epoch, and what its order may depend on besides."""

    number: int  # from 0
    class_scores: tuple[float, ...] = ()  # (C,) of the last validation, 0 to 1; () before the first


@dataclass(frozen=True)
class BatchRecipe:
    """The choices of train.py's flags of these names; the defaults make shuffled squares."""

    rectangular: bool = False
    quad: bool = False
    image_weights: bool = False
    repeat_factor: float = 0.0
    mosaic_window: int = 0  # partners of a mosaic are among so many of the order; 0: all samples

    def length(self, samples: SampleTable) -> int:
        """Return how many samples an epoch shows, repeated ones each time."""
        if self._repeats:
            return math.ceil(repeat_factors(samples, self.repeat_factor).sum())
        return len(samples)

    def order(self, seed: int, samples: SampleTable, epoch: Epoch) -> np.ndarray:
        """Return the sample indices of an epoch in their order, (length,) int64."""
        if self.rectangular:
            return aspect_order(samples)
        if self.image_weights:
            return weighted(seed, samples, epoch)
        if self._repeats:
            return repeated(seed, repeat_factors(samples, self.repeat_factor), epoch.number)
        return epoch_order(seed, epoch.number, len(samples))

    @property
    def _repeats(self) -> bool:
        return self.repeat_factor > 0 and not (self.rectangular or self.image_weights)


SQUARE = BatchRecipe()


def rectangle(
    sizes: Iterable[tuple[int, int]], long_side: int, stride: int, margin: float = 0.0
) -> tuple[int, int]:
    """Return the smallest (height, width) in multiples of `stride` that holds these images.

    Args:
        sizes: (height, width) of the images, each of which is resized to `long_side`.
        margin: room around them, in strides.
    """
    inside = long_side, long_side
    resized = [fit_long_side(size, long_side, inside).resized_size for size in sizes]
    height, width = np.max(resized, axis=0) / stride + margin
    return math.ceil(height) * stride, math.ceil(width) * stride


def weighted(seed: int, samples: SampleTable, epoch: Epoch) -> np.ndarray:
    """Draw as many samples as there are, with replacement: rare, badly found classes more often.

    Where all weights are 0, since every class is found perfectly or nothing is labelled, each
    sample has the same.
    """
    classes = samples.class_index
    scores = np.array(epoch.class_scores or np.zeros(classes.max(initial=0) + 1))
    by_class = class_weights(classes, len(scores)) * (1 - scores) ** 2
    of_objects = by_class[classes]
    weights: np.ndarray = np.bincount(samples.image_of_object, of_objects, len(samples))
    if not weights.any():
        weights = np.ones(len(weights))
    ends = np.cumsum(weights)
    points = order_generator(seed, epoch.number).random(len(weights)) * ends[-1]
    last = int(np.flatnonzero(weights)[-1])  # a product may round up to the end
    return np.searchsorted(ends, points, side="right").clip(max=last)


def repeated(seed: int, factors: np.ndarray, epoch: int) -> np.ndarray:
    """Show each sample at least once, those with rare classes more often, in random order.

    A sample is shown on average as often as its factor: by systematic sampling, each time its
    factor rounded down or up. An epoch shows the sum of the factors, rounded up.
    """
    length = math.ceil(factors.sum())
    order = epoch_order(seed, epoch, len(factors))
    draws = order_generator(seed, epoch).random(1 + length)
    ends = np.cumsum(factors[order])
    ends = ends * (length / ends[-1])
    ends[-1] = length  # not just below it
    counts = np.diff(np.floor(ends + draws[0]).astype(np.int64), prepend=0)
    return np.repeat(order, counts)[np.argsort(draws[1:], kind="stable")]


@lru_cache(maxsize=4)  # every batch of an epoch asks for the same order
def draws_of(recipe: BatchRecipe, seed: int, samples: SampleTable, epoch: Epoch) -> np.ndarray:
    """Return a distinct number for each sample of an epoch, (length,) int64, read-only.

    A number modulo `len(samples)` is the sample index. The k-th repetition of a sample in an epoch
    is k * `len(samples)` higher, and so has random changes of its own.
    """
    order = recipe.order(seed, samples, epoch)
    by_sample = np.argsort(order, kind="stable")
    grouped = order[by_sample]
    draws = np.empty_like(order)
    repetition = np.arange(len(order)) - np.searchsorted(grouped, grouped)
    draws[by_sample] = grouped + repetition * len(samples)
    draws.setflags(write=False)
    return draws


def aspect_order(samples: SampleTable) -> np.ndarray:
    """Return the sample indices from the widest to the tallest image, (S,) int64."""
    height, width = samples.sizes.T
    return np.argsort(height / width, kind="stable")


def class_weights(class_index: np.ndarray, num_classes: int) -> np.ndarray:
    """Return the inverse of how often each class occurs, at least once, in sum 1: (C,) float64.

    Args:
        class_index: (T,) of all objects.
        num_classes: above every class index.

    Source: the public YOLOv5 recipe, --image-weights.
    """
    weights = 1 / np.bincount(class_index, minlength=num_classes).clip(min=1)
    return weights / weights.sum()


@lru_cache(maxsize=2)  # every batch asks for the length of an epoch
def repeat_factors(samples: SampleTable, threshold: float) -> np.ndarray:
    """Return how often an epoch shows each image on average, (S,) float64, from 1 up.

    Of an image it is the largest of its classes, max(1, sqrt(threshold / f)); f is the fraction
    of the images that show the class; 1 without objects.

    Source: Gupta et al. 2019, arXiv:1908.03195, appendix B.1.
    """
    factors = np.ones(len(samples))
    if not len(samples.class_index):
        return factors
    num_classes = int(samples.class_index.max()) + 1
    pairs = np.unique(samples.image_of_object * num_classes + samples.class_index)
    images, classes = np.divmod(pairs, num_classes)
    frequency = np.bincount(classes) / len(samples)
    np.maximum.at(factors, images, np.sqrt(threshold / frequency[classes]))
    return factors
