"""Random numbers as a function of (seed, epoch, sample index), with no state anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import numpy as np


class Stream(IntEnum):
    """Purposes of random numbers: the second key word, which keeps their streams apart."""

    SAMPLE = 0
    ORDER = 1
    DRAWN_ORDER = 2
    BATCH = 4
    DROPOUT = 15
    ANCHORS = 16
    TRANSFORMS = 17


def sample_generator(seed: int, epoch: int, index: int) -> np.random.Generator:
    """Return the generator of one sample in one epoch, at O(1) cost; all three are from 0 up.

    Only its `.random()` is used in this package: NumPy promises the bits of Philox for ever, but
    not how its other distributions use them, and batches must agree between NumPy versions.
    """
    return stream_generator(seed, Stream.SAMPLE, epoch, index)


def epoch_order(seed: int, epoch: int, num_samples: int) -> np.ndarray:
    """Return the shuffled sample indices of an epoch, (num_samples,) int64."""
    keys = stream_generator(seed, Stream.ORDER, epoch).random(num_samples)
    return np.argsort(keys, kind="stable")


def stream_generator(
    seed: int, stream: Stream, epoch: int = 0, index: int = 0
) -> np.random.Generator:
    """Return the generator of another purpose; only `.random()` is used."""
    # (index, epoch) are the high words of a 256-bit counter: each pair has 2**128 blocks of draws.
    counter = np.array([0, 0, index, epoch], np.uint64)
    key = np.array([seed, stream], np.uint64)
    return np.random.Generator(np.random.Philox(counter=counter, key=key))


def nearly_normal(draws: Sequence[float]) -> float:
    """Return four draws from 0 to 1 as one of mean 0 and standard deviation 1, nearly normal.

    It is made only of sums and products: every version of NumPy gives the same result.
    """
    return (sum(draws) - 2) * 3**0.5
