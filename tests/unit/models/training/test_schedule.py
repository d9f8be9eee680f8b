"""Learning rates, momentum and accumulation of every batch; what --optimizer refuses."""

import dataclasses

import numpy as np
import pytest

from duet.backend import autograd, optim
from duet.models.training.optimizer import Schedule, build_optimizer
from duet.utils.cli.hyperparameters import DEFAULT_HYPERPARAMETERS, read_hyperparameters
from duet.utils.errors import UserError
from tests.shared_files import shared_path

EPOCHS, BATCHES = 30, 19


@pytest.fixture
def hyp():
    return read_hyperparameters(DEFAULT_HYPERPARAMETERS)


@pytest.mark.parametrize("kind", ["linear", "cos"])
def test_settings_of_every_batch_are_the_stored_ones(hyp, kind):
    table = np.load(shared_path("golden/metrics/lr_table.npz"))[kind]
    schedule = Schedule(hyp, EPOCHS, BATCHES, 16, cosine=kind == "cos")
    last_update = -1
    for number, (epoch, batch, *expected) in enumerate(table):
        assert number == epoch * BATCHES + batch
        settings = schedule.at(number)
        updates = number - last_update >= settings.accumulate
        last_update = number if updates else last_update
        actual = [
            settings.bias_rate,
            settings.weight_rate,
            settings.weight_rate,
            settings.momentum,
            settings.accumulate,
            updates,
        ]
        # The same float64 formula in another order of operations.
        np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(("batch_size", "accumulate"), [(16, 4), (64, 1), (128, 1), (24, 3)])
def test_weight_decay_follows_the_batch_that_accumulation_reaches(hyp, batch_size, accumulate):
    schedule = Schedule(hyp, EPOCHS, BATCHES, batch_size, cosine=False)
    assert schedule.accumulate == accumulate
    assert schedule.weight_decay == pytest.approx(5e-4 * batch_size * accumulate / 64)


def test_no_warmup_starts_at_full_rate(hyp):
    schedule = Schedule(dataclasses.replace(hyp, warmup_epochs=0), EPOCHS, BATCHES, 16, False)
    settings = schedule.at(0)
    assert settings.bias_rate == settings.weight_rate == hyp.lr0
    assert settings.accumulate == 4


@pytest.mark.parametrize(("batches", "expected"), [(19, 100), (33, 100), (34, 102), (200, 600)])
def test_a_warmup_of_three_epochs_has_at_least_100_batches(hyp, batches, expected):
    schedule = Schedule(hyp, EPOCHS, batches, 16, cosine=False)
    assert schedule.warmup_batches == expected
    assert schedule.at(expected // 2).weight_rate == pytest.approx(
        schedule.at(expected).weight_rate / 2, rel=0.2
    )  # a blend from 0, of a rate that falls by a few percent an epoch


@pytest.mark.parametrize(
    ("share", "epochs", "expected"), [(1.0, 1, 100), (0.1, 30, 57), (0.1, 300, 100), (0.1, 1, 2)]
)
def test_a_short_run_warms_up_for_a_share_of_it(hyp, share, epochs, expected):
    hyp = dataclasses.replace(hyp, warmup_share=share)
    assert Schedule(hyp, epochs, BATCHES, 16, cosine=False).warmup_batches == expected


def test_nbs_is_the_number_of_images_that_batches_are_accumulated_to(hyp):
    schedule = Schedule(dataclasses.replace(hyp, nbs=32), EPOCHS, BATCHES, 16, cosine=False)
    assert (schedule.accumulate, schedule.weight_decay) == (2, hyp.weight_decay)
    alone = dataclasses.replace(schedule, accumulates=False)
    assert (alone.accumulate, alone.weight_decay) == (1, hyp.weight_decay)


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
