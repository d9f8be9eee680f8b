"""Random numbers as a function of (seed, epoch, index)."""

import math

import numpy as np
import pytest

from duet.utils.data.randomness import nearly_normal, sample_generator


def test_the_numbers_are_those_of_philox_at_a_counter():
    # Philox as NumPy documents it: 256-bit counter, here (0, 0, index, epoch); key (seed, 0).
    counter = 5 * 2**128 + 3 * 2**192
    expected = np.random.Generator(np.random.Philox(counter=counter, key=7)).random(8)
    np.testing.assert_array_equal(sample_generator(7, 3, 5).random(8), expected)


def test_four_draws_have_mean_0_and_standard_deviation_1():
    assert nearly_normal([0.5] * 4) == 0
    assert nearly_normal([1, 1, 1, 0.5]) == pytest.approx(1.5 * math.sqrt(3), rel=1e-15)
    draws = np.random.default_rng(0).random((20_000, 4))
    found = np.array([nearly_normal(row) for row in draws])
    # Of 20,000 independent values both are within 0.03 of it, four standard errors.
    assert abs(found.mean()) < 0.03 and abs(found.std() - 1) < 0.03
