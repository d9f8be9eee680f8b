"""Random numbers as a function of (seed, epoch, sample index), with no state anywhere."""

from collections.abc import Sequence
from enum import IntEnum

import numpy as np


class Stream(IntEnum):
    """What is drawn; no stream depends on the draws of another."""

    SAMPLE = 0
    ORDER = 1
    DRAWN_ORDER = 2  # of an epoch whose samples are drawn
    BATCH = 4  # index: the number of the batch in the whole training
    DROPOUT = 15  # likewise
    ANCHORS = 16
    TRANSFORMS = 17  # of a sample, by a seed that was drawn for it


def generator_of(stream: Stream, seed: int, epoch: int = 0, index: int = 0) -> np.random.Generator:
    """Return the generator of a stream at a place, at O(1) cost; all numbers are from 0 up.

    Only its `.random()` is used in this package: NumPy promises the bits of Philox for ever, but
    not how its other distributions use them, and batches must agree between NumPy versions.
    """
    # (index, epoch) are the high words of a 256-bit counter: each pair has 2**128 blocks of draws.
    counter = np.array([0, 0, index, epoch], np.uint64)
    key = np.array([seed, stream], np.uint64)
    return np.random.Generator(np.random.Philox(counter=counter, key=key))


def sample_generator(seed: int, epoch: int, index: int) -> np.random.Generator:
    return generator_of(Stream.SAMPLE, seed, epoch, index)


def epoch_order(seed: int, epoch: int, num_samples: int) -> np.ndarray:
    """Return the shuffled sample indices of an epoch, (num_samples,) int64."""
    keys = generator_of(Stream.ORDER, seed, epoch).random(num_samples)
    return np.argsort(keys, kind="stable")


def nearly_normal(draws: Sequence[float]) -> float:
    """Return four draws from 0 to 1 as one of mean 0 and standard deviation 1, nearly normal.

    It is made only of sums and products: every version of NumPy gives the same result.
    """
    return (sum(draws) - 2) * 3**0.5
