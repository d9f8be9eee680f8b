"""The focal loss of models/heads/anchor/loss.py by its definition and at extremes."""

import numpy as np
import pytest

from duet.backend import autograd, ops
from duet.models.heads.anchor.loss import cross_entropy
from tests.unit.models.heads.anchor.test_loss import numeric_gradient


def focal(logits, truth, positive_weight, gamma):
    """Equation 5 of Lin et al. 2017, for truth between 0 and 1 the mean of its two cases."""
    score = 1 / (1 + np.exp(-logits))
    entropy = -positive_weight * truth * np.log(score) - (1 - truth) * np.log(1 - score)
    score_of_truth = truth * score + (1 - truth) * (1 - score)
    alpha = truth * 0.25 + (1 - truth) * 0.75
    return float(np.mean(alpha * (1 - score_of_truth) ** gamma * entropy))


@pytest.mark.parametrize("gamma", [0.5, 1.5, 2.0])
@pytest.mark.parametrize("positive_weight", [1.0, 1.7])
def test_the_focal_loss_and_its_gradient_are_those_of_its_definition(gamma, positive_weight):
    random = np.random.default_rng(0)
    logits, truth = random.normal(0, 2, (4, 5)), random.choice([0.0, 1.0, 0.3], (4, 5))
    x = autograd.variable(logits)
    loss = cross_entropy(x, ops.tensor(truth), positive_weight, gamma)
    assert float(ops.to_numpy(loss)) == pytest.approx(
        focal(logits, truth, positive_weight, gamma), rel=1e-9
    )
    (gradient,) = autograd.gradients(loss, [x])
    wanted = numeric_gradient(lambda at: focal(at, truth, positive_weight, gamma), logits)
    np.testing.assert_allclose(ops.to_numpy(gradient), wanted, rtol=0, atol=1e-8)


@pytest.mark.parametrize("gamma", [1e-3, 0.5, 1.5, 10.0])
def test_the_focal_loss_of_extreme_logits_is_finite_with_its_gradient(gamma):
    logits = np.array([-1e4, -100, -20, 0, 20, 100, 1e4], np.float32)
    for truth in (0.0, 0.4, 1.0):
        x = autograd.variable(logits)
        loss = cross_entropy(x, ops.tensor(np.full(7, truth, np.float32)), 1.0, gamma)
        (gradient,) = autograd.gradients(loss, [x])
        assert np.isfinite(ops.to_numpy(loss)) and np.isfinite(ops.to_numpy(gradient)).all()


def test_gamma_zero_is_the_plain_cross_entropy():
    x, truth = ops.tensor(np.array([0.5, -2.0])), ops.tensor(np.array([1.0, 0.2]))
    found = float(ops.to_numpy(cross_entropy(x, truth, 2.0, 0.0)))
    assert found == float(ops.to_numpy(ops.bce_with_logits(x, truth, 2.0)))
