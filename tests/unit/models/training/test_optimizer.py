"""Which optimizer --optimizer gives, and what it refuses."""

import dataclasses

import numpy as np
import pytest

from duet.backend import autograd, optim
from duet.models.training.optimizer import build_optimizer
from duet.utils.cli.hyperparameters import DEFAULT_HYPERPARAMETERS, read_hyperparameters
from duet.utils.errors import UserError

HYP = read_hyperparameters(DEFAULT_HYPERPARAMETERS)


def choose(name, hyp=HYP):
    groups = [({"weight": autograd.variable(np.ones(2))}, 0.1)]
    return build_optimizer(name, groups, hyp)


@pytest.mark.parametrize("field", ["momentum", "warmup_momentum"])
def test_a_momentum_of_one_cannot_be_beta1_of_adam(field):
    hyp = dataclasses.replace(HYP, **{field: 1.0})
    assert type(choose("SGD", hyp)) is optim.SGD
    for name in ("Adam", "AdamW"):
        with pytest.raises(UserError, match=f"^{field}: 1.0 in --hyp is used as beta1 of {name}"):
            choose(name, hyp)
