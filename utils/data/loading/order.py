"""Which samples an epoch shows, and in which order.

It is a function of seed and epoch, and all epochs are equally long: learning rates and a resumed
run count by their length.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple, Protocol

import numpy as np

from utils.data.randomness import epoch_order, order_generator
from utils.data.sources.samples import SampleTable


class Epoch(NamedTuple):
    """An epoch, and what its order may depend on besides."""

    number: int  # from 0
    class_scores: tuple[float, ...] = ()  # (C,) of the last validation, 0 to 1; () before the first


class Order(Protocol):
    """The samples of every epoch."""

    def __hash__(self) -> int:
        """Return what tells it from another order."""

    def __len__(self) -> int:
        """Return how many samples an epoch shows, repeated ones each time."""

    def samples_of(self, epoch: Epoch) -> np.ndarray:
        """Return the sample indices of an epoch in their order, (len(self),) int64."""


@dataclass(frozen=True, eq=False)
class Shuffled:
    """Each sample once, in random order."""

    seed: int
    num_samples: int

    def __len__(self) -> int:
        return self.num_samples

    def samples_of(self, epoch: Epoch) -> np.ndarray:
        return epoch_order(self.seed, epoch.number, self.num_samples)


@dataclass(frozen=True, eq=False)
class ByAspectRatio:
    """Each sample once, from the widest to the tallest, the same in every epoch."""

    samples: SampleTable

    def __len__(self) -> int:
        return len(self.samples)

    def samples_of(self, epoch: Epoch) -> np.ndarray:
        return aspect_order(self.samples)


@dataclass(frozen=True, eq=False)
class Weighted:
    """As many samples as there are, with replacement: rare and badly found classes more often.

    Where all weights are 0, since every class is found perfectly or nothing is labelled, each
    sample has the same.
    """

    seed: int
    samples: SampleTable

    def __len__(self) -> int:
        return len(self.samples)

    def samples_of(self, epoch: Epoch) -> np.ndarray:
        classes = self.samples.class_index
        scores = np.array(epoch.class_scores or np.zeros(classes.max(initial=0) + 1))
        by_class = class_weights(classes, len(scores)) * (1 - scores) ** 2
        weights = image_weights(self.samples, by_class)
        if not weights.any():
            weights = np.ones(len(weights))
        ends = np.cumsum(weights)
        points = order_generator(self.seed, epoch.number).random(len(weights)) * ends[-1]
        last = int(np.flatnonzero(weights)[-1])  # a product may round up to the end
        return np.searchsorted(ends, points, side="right").clip(max=last)


@dataclass(frozen=True, eq=False)
class Repeated:
    """Each sample at least once, those with rare classes more often, in random order.

    An epoch shows the sum of the factors, rounded up. A sample is shown as often as its factor
    says on average: by systematic sampling, each time its factor rounded down or up.
    """

    seed: int
    factors: np.ndarray  # (S,) float64, from 1 up

    def __len__(self) -> int:
        return self._length

    @cached_property
    def _length(self) -> int:
        return math.ceil(self.factors.sum())

    def samples_of(self, epoch: Epoch) -> np.ndarray:
        samples = epoch_order(self.seed, epoch.number, len(self.factors))
        draws = order_generator(self.seed, epoch.number).random(1 + len(self))
        ends = np.cumsum(self.factors[samples])
        ends = ends * (len(self) / ends[-1])
        ends[-1] = len(self)  # not just below it
        counts = np.diff(np.floor(ends + draws[0]).astype(np.int64), prepend=0)
        return np.repeat(samples, counts)[np.argsort(draws[1:], kind="stable")]


@lru_cache(maxsize=4)  # every batch of an epoch asks for the same order
def draws_of(order: Order, epoch: Epoch, num_samples: int) -> np.ndarray:
    """Return a distinct number for each sample of an epoch, (len(order),) int64, read-only.

    A number modulo `num_samples` is the sample index. The k-th repetition of a sample in an epoch
    is k * `num_samples` higher, and so has random changes of its own.
    """
    samples = order.samples_of(epoch)
    by_sample = np.argsort(samples, kind="stable")
    grouped = samples[by_sample]
    draws = np.empty_like(samples)
    repetition = np.arange(len(samples)) - np.searchsorted(grouped, grouped)
    draws[by_sample] = grouped + repetition * num_samples
    draws.setflags(write=False)
    return draws


def place_in_window(position: int, back: int, window: int) -> int:
    """Return the place in an epoch's order that lies `back` places before a position.

    Args:
        position: from 0 up.
        back: from 0 to below `window`.
        window: at most the length of the order. Its first places see all others of the first
            window instead, behind them too.
    """
    place = position - back
    return place if place >= 0 else place + window


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


def image_weights(samples: SampleTable, by_class: np.ndarray) -> np.ndarray:
    """Return the sum of the weights (C,) of each image's objects, (S,) float64."""
    weights = by_class[samples.class_index]
    return np.bincount(samples.image_of_object, weights, minlength=len(samples))


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
