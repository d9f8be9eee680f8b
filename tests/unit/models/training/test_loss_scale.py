"""Loss scaling: when the factor changes, and what is done with it."""

from types import SimpleNamespace

import numpy as np
import pytest

from backend import autograd, ops
from models.training.loss_scale import LossScale
from models.training.multi_tensor import backpropagate


def test_only_float16_is_scaled():
    for dtype in ("float32", "float64", "bfloat16"):
        scale = LossScale.of_precision(dtype)
        scale.update(finite=False)
        assert scale.value == 1
        for _ in range(2000):
            scale.update(finite=True)
        assert scale.value == 1
        assert scale.scaled(abs) is abs
    assert LossScale.of_precision("float16").value == 65536


def test_ranks_multiply_by_no_more_than_a_process_alone(monkeypatch):
    for name, value in {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "4"}.items():
        monkeypatch.setenv(name, value)
    assert LossScale.of_precision("float16").value * 4 == 65536


def test_an_overflow_halves_and_a_long_run_without_doubles():
    scale = LossScale.of_precision("float16")
    scale.update(finite=False)
    assert scale.value == 32768
    for _ in range(1999):
        scale.update(finite=True)
    assert scale.value == 32768
    scale.update(finite=True)
    assert scale.value == 65536
    for _ in range(1999):
        scale.update(finite=True)
    scale.update(finite=False)  # the count starts again
    scale.update(finite=True)
    assert scale.value == 32768


def test_each_doubling_takes_its_own_2000_updates():
    scale = LossScale.of_precision("float16")
    values = []
    for _ in range(4000):
        scale.update(finite=True)
        values.append(scale.value)
    assert values == [2.0**16] * 1999 + [2.0**17] * 2000 + [2.0**18]


def test_the_value_stays_within_its_limits():
    scale = LossScale.of_precision("float16")
    for _ in range(100):
        scale.update(finite=False)
    assert scale.value == 1
    scale.value = 2.0**24
    for _ in range(2000):
        scale.update(finite=True)
    assert scale.value == 2.0**24


def test_an_overflow_may_be_the_fault_of_a_scale_above_its_lowest_value():
    assert not LossScale.of_precision("float32").can_fall
    scale = LossScale.of_precision("float16")
    assert scale.can_fall
    scale.value = 1.0
    assert not scale.can_fall


@pytest.mark.parametrize(("value", "expected"), [(4.0, [0.5, np.inf]), (1.0, [2.0, np.inf])])
def test_gradients_are_divided_by_the_scale(value, expected):
    x = autograd.variable(np.zeros(2))
    backpropagate({"x": x}, {"x": np.array([2.0, np.inf])})
    LossScale(value, adapts=True).unscale([x])
    np.testing.assert_array_equal(ops.to_numpy(x.grad), expected)


def test_gradients_of_the_scaled_loss_come_back_unscaled():
    class Terms(SimpleNamespace):
        def _replace(self, total):
            return Terms(total=total)

    x = autograd.variable(np.array([1.0, 2.0]))
    scale = LossScale.of_precision("float16")
    loss = scale.scaled(lambda raw, targets: Terms(total=ops.sum(raw * raw)))
    (gradient,) = autograd.gradients(loss(x, None).total, [x])
    np.testing.assert_array_equal(ops.to_numpy(gradient), [2 * 65536, 4 * 65536])
    scale.value = 4.0  # the loss follows
    (gradient,) = autograd.gradients(loss(x, None).total, [x])
    np.testing.assert_array_equal(ops.to_numpy(gradient), [8, 16])
    assert x.grad is None
    scale.unscale([x])
    assert pytest.approx(5.0) == float(ops.to_numpy(loss(x, None).total)) / 4
