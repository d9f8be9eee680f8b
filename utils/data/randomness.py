"""Random numbers as a function of (seed, epoch, sample index), with no state anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

# The second key word keeps the streams of different purposes apart.
_SAMPLE_STREAM, _ORDER_STREAM, _DRAWN_ORDER_STREAM = range(3)
_BATCH_STREAM = 4
_DROPOUT_STREAM = 15
_ANCHOR_STREAM = 16
_TRANSFORM_STREAM = 17


def sample_generator(seed: int, epoch: int, index: int) -> np.random.Generator:
    """Return the generator of one sample in one epoch, at O(1) cost; all three are from 0 up.

    Only its `.random()` is used in this package: NumPy promises the bits of Philox for ever, but
    not how its other distributions use them, and batches must agree between NumPy versions.
    """
    return _generator(seed, _SAMPLE_STREAM, epoch, index)


@lru_cache(maxsize=2)  # every batch of an epoch asks for the same order
def epoch_order(seed: int, epoch: int, num_samples: int) -> np.ndarray:
    """Return the shuffled sample indices of an epoch, (num_samples,) int64, read-only."""
    keys = _generator(seed, _ORDER_STREAM, epoch, 0).random(num_samples)
    order = np.argsort(keys, kind="stable")
    order.setflags(write=False)
    return order


def order_generator(seed: int, epoch: int) -> np.random.Generator:
    """Return the generator of an epoch whose samples are drawn; only `.random()` is used."""
    return _generator(seed, _DRAWN_ORDER_STREAM, epoch, 0)


def batch_generator(seed: int, batch_number: int) -> np.random.Generator:
    """Return the generator of a batch of the whole training; only `.random()` is used."""
    return _generator(seed, _BATCH_STREAM, 0, batch_number)


def dropout_generator(seed: int, batch_number: int) -> np.random.Generator:
    """Return the generator of what a batch leaves out; only `.random()` is used."""
    return _generator(seed, _DROPOUT_STREAM, 0, batch_number)


def transform_generator(seed: int) -> np.random.Generator:
    """Return the generator of a sample's transforms, by a drawn seed; only `.random()` is used."""
    return _generator(seed, _TRANSFORM_STREAM, 0, 0)


def anchor_generator(seed: int) -> np.random.Generator:
    """Return the generator with which anchors are fitted."""
    return _generator(seed, _ANCHOR_STREAM, 0, 0)


def _generator(seed: int, stream: int, epoch: int, index: int) -> np.random.Generator:
    # (index, epoch) are the high words of a 256-bit counter: each pair has 2**128 blocks of draws.
    counter = np.array([0, 0, index, epoch], np.uint64)
    key = np.array([seed, stream], np.uint64)
    return np.random.Generator(np.random.Philox(counter=counter, key=key))


def nearly_normal(draws: Sequence[float]) -> float:
    """Return four draws from 0 to 1 as one of mean 0 and standard deviation 1, nearly normal.

    It is made only of sums and products: every version of NumPy gives the same result.
    """
    return (sum(draws) - 2) * 3**0.5
