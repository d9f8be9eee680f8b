"""The focal loss of models/heads/anchor/loss.py by its definition and at extremes."""

import numpy as np
import pytest

from duet.backend import autograd, ops
from duet.models.heads.anchor.loss import cross_entropy


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
