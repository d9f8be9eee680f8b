"""The constants of one update of Adam, the same for every backend; imports no framework."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from backend import checks

BETA2 = 0.999
EPSILON = 1e-8
MOMENTS = ("first_moment", "second_moment")  # of each parameter: `conv.weight.first_moment`
UPDATES = "updates"  # the state array that counts them


class AdamConstants(NamedTuple):
    """What w -= rate * m / (sqrt(v) + epsilon) needs, each a float32 number."""

    rate: float  # the learning rate with its bias correction
    epsilon: float
    beta1: float
    beta2: float


def adam_constants(learning_rate: float, momentum: float, update: int) -> AdamConstants:
    """Return the constants of an update, counted from 1, with the bias corrections folded in.

    Raises:
        ValueError: momentum outside [0, 1).

    Source: Kingma & Ba 2015, arXiv:1412.6980, end of section 2. Folded in, the corrections are
    rounded once, here: OneFlow's kernel keeps them as float32, PyTorch's function as float64.
    """
    beta1, beta2 = checks.as_float32(momentum), checks.as_float32(BETA2)
    if not 0 <= beta1 < 1:
        raise ValueError(f"momentum {momentum} is beta1 of Adam, which must be from 0 to below 1")
    second = math.sqrt(1 - beta2**update)
    rate = checks.as_float32(learning_rate) * second / (1 - beta1**update)
    epsilon = checks.as_float32(EPSILON) * second
    return AdamConstants(checks.as_float32(rate), checks.as_float32(epsilon), beta1, beta2)


def count_updates(arrays: Mapping[str, np.ndarray]) -> int:
    """Return how many updates the state arrays of Adam have seen; 0 for no arrays.

    Raises:
        ValueError: arrays that do not say it, such as those of another optimizer.
    """
    if arrays and UPDATES not in arrays:
        raise ValueError(f"optimizer state {UPDATES!r} is missing: this is no state of Adam")
    return int(arrays.get(UPDATES, np.array(0)))
