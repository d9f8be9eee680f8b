"""The samples of an epoch, their order, and the shapes of their batches.

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
from duet.utils.data.randomness import Stream, epoch_order, stream_generator
from duet.utils.data.sources.samples import SampleTable


class Epoch(NamedTuple):
    """An epoch, and the class scores that its order may depend on."""

    number: int  # from 0
    class_scores: tuple[float, ...] = ()  # (C,) of the last validation, 0 to 1; () before the first


@dataclass(frozen=True)
class BatchRecipe:
    """The choices of train.py's flags of these names; the defaults make shuffled squares."""

    rectangular: bool = False
    image_weights: bool = False

    def order(self, seed: int, samples: SampleTable, epoch: Epoch) -> np.ndarray:
        """Return the sample indices of an epoch in their order, (S,) int64."""
        if self.rectangular:
            return aspect_order(samples)
        if self.image_weights:
            return weighted(seed, samples, epoch)
        return epoch_order(seed, epoch.number, len(samples))


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

    If all weights are 0, because every class is found perfectly or nothing is labelled, all
    samples are equally likely.
    """
    classes = samples.class_index
    scores = np.array(epoch.class_scores or np.zeros(classes.max(initial=0) + 1))
    by_class = class_weights(classes, len(scores)) * (1 - scores) ** 2
    of_objects = by_class[classes]
    weights: np.ndarray = np.bincount(samples.image_of_object, of_objects, len(samples))
    if not weights.any():
        weights = np.ones(len(weights))
    ends = np.cumsum(weights)
    generator = stream_generator(seed, Stream.DRAWN_ORDER, epoch.number)
    points = generator.random(len(weights)) * ends[-1]
    last = int(np.flatnonzero(weights)[-1])  # a product may round up to the end
    return np.searchsorted(ends, points, side="right").clip(max=last)


@lru_cache(maxsize=4)  # every batch of an epoch asks for the same order
def draws_of(recipe: BatchRecipe, seed: int, samples: SampleTable, epoch: Epoch) -> np.ndarray:
    """Return a distinct number for each sample of an epoch, (S,) int64, read-only.

    A number modulo `len(samples)` is the sample index. The k-th repetition of a sample in an epoch
    is k * `len(samples)` higher, so it is augmented differently.
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
