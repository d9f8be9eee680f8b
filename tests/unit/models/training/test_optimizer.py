"""Learning rates, momentum and accumulation of every batch; the EMA; how float16 scales losses."""

import dataclasses
import math

import numpy as np
import pytest

from duet.backend import autograd, nn, ops, optim
from duet.models.detector import Detector
from duet.models.graph import read_model_yaml
from duet.models.heads.base import LossTerms
from duet.models.training.optimizer import (
    LossScale,
    ModelEMA,
    Schedule,
    build_optimizer,
    decay_after,
)
from duet.utils.cli.hyperparameters import DEFAULT_HYPERPARAMETERS, read_hyperparameters
from duet.utils.errors import UserError
from tests.conformance.checks_optim import backward
from tests.conformance.judging import Backend
from tests.environments import shared_path

EPOCHS, BATCHES = 30, 19


@pytest.fixture
def hyp():
    return read_hyperparameters(DEFAULT_HYPERPARAMETERS)


@pytest.mark.parametrize("kind", ["linear", "cos"])
def test_batch_settings_match_stored_values(hyp, kind):
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
def test_weight_decay_follows_the_accumulated_batch(hyp, batch_size, accumulate):
    schedule = Schedule(hyp, EPOCHS, BATCHES, batch_size, cosine=False)
    assert schedule.accumulate == accumulate
    assert schedule.weight_decay == pytest.approx(5e-4 * batch_size * accumulate / 64)


def test_no_warmup_starts_at_full_rate(hyp):
    schedule = Schedule(dataclasses.replace(hyp, warmup_epochs=0), EPOCHS, BATCHES, 16, False)
    settings = schedule.at(0)
    assert settings.bias_rate == settings.weight_rate == hyp.lr0
    assert settings.accumulate == 4


@pytest.mark.parametrize(("batches", "expected"), [(19, 100), (33, 100), (34, 102), (200, 600)])
def test_three_epoch_warmup_has_at_least_100_batches(hyp, batches, expected):
    schedule = Schedule(hyp, EPOCHS, batches, 16, cosine=False)
    assert schedule.warmup_batches == expected
    assert schedule.at(expected // 2).weight_rate == pytest.approx(
        schedule.at(expected).weight_rate / 2, rel=0.2
    )  # a blend from 0, of a rate that falls by a few percent an epoch


@pytest.mark.parametrize(
    ("share", "epochs", "expected"), [(1.0, 1, 100), (0.1, 30, 57), (0.1, 300, 100), (0.1, 1, 2)]
)
def test_short_run_warms_up_for_a_share_of_it(hyp, share, epochs, expected):
    hyp = dataclasses.replace(hyp, warmup_share=share)
    assert Schedule(hyp, epochs, BATCHES, 16, cosine=False).warmup_batches == expected


def test_nbs_is_the_accumulated_batch_size(hyp):
    schedule = Schedule(dataclasses.replace(hyp, nbs=32), EPOCHS, BATCHES, 16, cosine=False)
    assert (schedule.accumulate, schedule.weight_decay) == (2, hyp.weight_decay)
    alone = dataclasses.replace(schedule, accumulates=False)
    assert (alone.accumulate, alone.weight_decay) == (1, hyp.weight_decay)


HYP = read_hyperparameters(DEFAULT_HYPERPARAMETERS)


def choose(name, hyp=HYP):
    groups = [({"weight": autograd.variable(np.ones(2))}, 0.1)]
    return build_optimizer(name, groups, hyp)


@pytest.mark.parametrize("field", ["momentum", "warmup_momentum"])
def test_momentum_of_one_is_refused_as_adam_beta1(field):
    hyp = dataclasses.replace(HYP, **{field: 1.0})
    assert type(choose("SGD", hyp)) is optim.SGD
    for name in ("Adam", "AdamW"):
        with pytest.raises(UserError, match=f"^{field}: 1.0 is used as beta1 of {name}; "):
            choose(name, hyp)


@pytest.fixture
def model():
    detector = Detector(read_model_yaml("models/yolov5n.yaml", 1))
    detector.initialize(0)
    return detector


def test_default_ema_decay_is_the_public_ramp():
    assert decay_after(1) == pytest.approx(0.9999 * (1 - math.exp(-1 / 2000)))
    assert decay_after(100_000) == pytest.approx(0.9999)


@pytest.mark.parametrize("share", [0.05, 0.1, 0.5])
@pytest.mark.parametrize("updates", [200, 5000])
def test_ema_share_sets_the_mean_age_of_the_average(share, updates):
    average = 0.0
    for number in range(1, updates + 1):
        decay = decay_after(number, share)
        average = decay * average + (1 - decay) * number
    # Weights of (t / T) ** (1 / share - 1) have their mean at T / (1 + share); the sum is discrete.
    assert average / updates == pytest.approx(1 / (1 + share), abs=1 / updates)


def test_lost_update_does_not_move_the_average(model):
    average, started = ModelEMA(model), nn.state_arrays(model)
    nn.load_state_arrays(model, {name: array + 1 for name, array in started.items()})
    average.update(model, ops.full((), 1))
    for name, array in nn.state_arrays(average.model).items():
        np.testing.assert_array_equal(array, started[name], err_msg=name)


def test_only_float16_is_scaled_and_less_with_more_ranks(monkeypatch):
    for dtype in ("float32", "float64", "bfloat16"):
        scale = LossScale.of_precision(dtype)
        scale.update(finite=False)
        assert scale.value == 1 and not scale.can_fall
        assert scale.scaled(abs) is abs
    assert LossScale.of_precision("float16").value == 65536
    for name, value in {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "4"}.items():
        monkeypatch.setenv(name, value)
    assert LossScale.of_precision("float16").value * 4 == 65536


def test_loss_scale_halves_on_overflow_and_doubles_later():
    scale = LossScale.of_precision("float16")
    scale.update(finite=False)
    values = []
    for _ in range(4000):
        scale.update(finite=True)
        values.append(scale.value)
    assert values == [2.0**15] * 1999 + [2.0**16] * 2000 + [2.0**17]
    scale.update(finite=False)  # the count starts again
    scale.update(finite=True)
    assert (scale.value, scale.finite_updates) == (2.0**16, 1)
    for _ in range(100):
        scale.update(finite=False)
    assert scale.value == 1 and not scale.can_fall
    scale.value, scale.finite_updates = 2.0**24, 1999
    scale.update(finite=True)
    assert scale.value == 2.0**24


def test_gradients_are_divided_by_the_loss_scale():
    x = autograd.variable(np.array([1.0, 2.0]))
    scale = LossScale(4.0, adapts=True)
    loss = scale.scaled(lambda raw: LossTerms({}, ops.sum(raw * raw)))
    (gradient,) = autograd.gradients(loss(x).total, [x])
    np.testing.assert_array_equal(ops.to_numpy(gradient), [8, 16])
    for value, expected in ((4.0, [0.5, np.inf]), (1.0, [2.5, np.inf])):
        backward(Backend(), {"x": x}, {"x": np.array([2.0, np.inf])})
        LossScale(value, adapts=True).unscale([x])
        np.testing.assert_array_equal(ops.to_numpy(x.grad), expected)
