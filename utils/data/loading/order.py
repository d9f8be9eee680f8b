"""The order of samples by aspect ratio or by class, and the shapes of their batches.

The order is a function of seed and epoch, and all epochs are equally long: learning rates and a
resumed run count by their length.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from duet.utils.data.image.letterbox import fit_long_side
from duet.utils.data.randomness import Stream, generator_of
from duet.utils.data.sources.samples import SampleTable


class Epoch(NamedTuple):
    """An epoch, and what its order and its batches depend on."""

    number: int  # from 0
    class_scores: tuple[float, ...] = ()  # (C,) of the last validation, 0 to 1; () before the first
    leaves_pixels: bool = False  # colours and flips, to the device; see `batch.Finishing`


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

    All samples are equally likely if all classes are found perfectly or nothing is labelled.
    """
    classes = samples.class_index
    scores = np.array(epoch.class_scores or np.zeros(classes.max(initial=0) + 1))
    by_class = class_weights(classes, len(scores)) * (1 - scores) ** 2
    of_objects = by_class[classes]
    weights: np.ndarray = np.bincount(samples.image_of_object, of_objects, len(samples))
    if not weights.any():
        weights = np.ones(len(weights))
    ends = np.cumsum(weights)
    generator = generator_of(Stream.DRAWN_ORDER, seed, epoch.number)
    points = generator.random(len(weights)) * ends[-1]
    last = int(np.flatnonzero(weights)[-1])  # a product may round up to the end
    return np.searchsorted(ends, points, side="right").clip(max=last)


def aspect_order(samples: SampleTable) -> np.ndarray:
    """Return the sample indices from the widest to the tallest image, (S,) int64."""
    height, width = samples.sizes.T
    return np.argsort(height / width, kind="stable")


def class_weights(class_index: np.ndarray, num_classes: int) -> np.ndarray:
    """Return the inverse frequency of each class, normalised to sum 1: (C,) float64.

    Source: the public YOLOv5 recipe, --image-weights.
    """
    weights = 1 / np.bincount(class_index, minlength=num_classes).clip(min=1)
    return weights / weights.sum()
