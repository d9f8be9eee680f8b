"""Random numbers as a function of (seed, epoch, index)."""

import math

import numpy as np
import pytest

from duet.utils.data.randomness import epoch_order, nearly_normal, sample_generator


def test_streams_differ_for_neighbouring_seeds_epochs_and_indices():
    keys = [(seed, epoch, index) for seed in (0, 1) for epoch in (0, 1) for index in (0, 1, 2)]
    streams = [tuple(sample_generator(*key).random(4)) for key in keys]
    assert len(set(streams)) == len(keys)
    flat = [value for stream in streams for value in stream]
    assert len(set(flat)) == len(flat)


def test_the_numbers_are_those_of_philox_at_a_counter():
    # Philox as NumPy documents it: 256-bit counter, here (0, 0, index, epoch); key (seed, 0).
    counter = 5 * 2**128 + 3 * 2**192
    expected = np.random.Generator(np.random.Philox(counter=counter, key=7)).random(8)
    np.testing.assert_array_equal(sample_generator(7, 3, 5).random(8), expected)


def test_stored_numbers_are_drawn_with_every_numpy():
    # Stored from NumPy 2.2.6; batches depend on these bits.
    expected = [0.360468362910245, 0.09025062835764619, 0.20810977977369594]
    assert sample_generator(1, 2, 3).random(3).tolist() == expected


def test_an_order_is_a_permutation_that_changes_with_seed_and_epoch():
    orders = [epoch_order(seed, epoch, 100).tolist() for seed in (0, 1) for epoch in (0, 1)]
    assert all(sorted(order) == list(range(100)) for order in orders)
    assert len({tuple(order) for order in orders}) == 4
    assert epoch_order(0, 0, 100).tolist() == orders[0]


def test_four_draws_have_mean_0_and_standard_deviation_1():
    assert nearly_normal([0.5] * 4) == 0
    assert nearly_normal([1, 1, 1, 0.5]) == pytest.approx(1.5 * math.sqrt(3), rel=1e-15)
    draws = np.random.default_rng(0).random((20_000, 4))
    found = np.array([nearly_normal(row) for row in draws])
    # Of 20,000 independent values both are within 0.03 of it, four standard errors.
    assert abs(found.mean()) < 0.03 and abs(found.std() - 1) < 0.03
