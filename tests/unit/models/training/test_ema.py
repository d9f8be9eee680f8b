"""The average of the weights: how fast it follows, and what it holds."""

import math

import numpy as np
import pytest

from duet.backend import nn, ops
from duet.models.detector import Detector
from duet.models.graph import read_model_yaml
from duet.models.training.optimizer import ModelEMA, decay_after


@pytest.fixture
def model():
    detector = Detector(read_model_yaml("models/yolov5n.yaml", 1))
    detector.initialize(0)
    return detector


def test_decay_rises_from_nothing_towards_its_limit():
    assert decay_after(1) == pytest.approx(0.9999 * (1 - math.exp(-1 / 2000)))
    assert decay_after(100_000) == pytest.approx(0.9999)


@pytest.mark.parametrize("share", [0.05, 0.1, 0.5])
@pytest.mark.parametrize("updates", [200, 5000])
def test_a_share_makes_the_mean_age_a_fraction_of_all_updates(share, updates):
    average = 0.0
    for number in range(1, updates + 1):
        decay = decay_after(number, share)
        average = decay * average + (1 - decay) * number
    # Weights of (t / T) ** (1 / share - 1) have their mean at T / (1 + share); the sum is discrete.
    assert average / updates == pytest.approx(1 / (1 + share), abs=1 / updates)


def test_two_updates_give_the_weighted_mean_and_leave_the_model_alone(model):
    average = ModelEMA(model)
    states = [nn.state_arrays(model)]
    for step in (1, 2):
        changed = {
            name: array + step if array.dtype == np.float32 else array + 1
            for name, array in states[0].items()
        }
        nn.load_state_arrays(model, changed)
        states.append(nn.state_arrays(model))
        average.update(model)
    first, second = decay_after(1), decay_after(2)
    held = nn.state_arrays(average.model)
    for name, start in states[0].items():
        if start.dtype == np.float32:
            expected = second * (first * start + (1 - first) * states[1][name])
            expected = expected + (1 - second) * states[2][name]
            # Two float32 roundings of values up to 2.
            np.testing.assert_allclose(held[name], expected, atol=1e-6, err_msg=name)
        else:
            assert held[name] == start
    after = nn.state_arrays(model)
    assert all(np.array_equal(after[name], states[2][name]) for name in after)
    assert average.updates == 2


def test_a_lost_update_moves_nothing(model):
    average, started = ModelEMA(model), nn.state_arrays(model)
    nn.load_state_arrays(model, {name: array + 1 for name, array in started.items()})
    average.update(model, ops.full((), 1))
    for name, array in nn.state_arrays(average.model).items():
        np.testing.assert_array_equal(array, started[name], err_msg=name)
