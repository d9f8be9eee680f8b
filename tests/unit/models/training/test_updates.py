"""The updates of many tensors together equal the plain ones, and are used only where they do."""

import dataclasses
import logging

import numpy as np
import pytest

from duet.backend import multi_tensor, nn, ops, optim
from duet.models.training import ema, updates
from duet.models.training.ema import ModelEMA
from duet.utils.cli.train_config import OPTIMIZERS
from tests.conformance.checks_modules import build
from tests.conformance.judging import Backend, uniform

TOLERANCE = 1e-5  # some updates of values up to 4 round them by 2e-7 each, in another order
B = Backend()
NUMBER = 20  # tensors of a model


@pytest.fixture
def models():
    """Two equal models, a part frozen, and their averages, plain and of packed memory."""
    models = [nn.place(build(B), "cpu", "float32") for _ in range(2)]
    for model in models:
        change(model, 100)
        nn.set_trainable([model.stem.conv.weight], False)
    return models, [ModelEMA(models[0]), ModelEMA(models[1], together=True)]


def change(model, seed):
    """Other weights, statistics and numbers of batches, in place, as training makes them."""
    arrays = nn.state_arrays(model)
    for index, (name, array) in enumerate(arrays.items()):
        if array.dtype == np.float32:
            arrays[name] = uniform(array.shape, "float32", 0, 4, seed=1000 * seed + index)
        else:
            arrays[name] = array + 1
    nn.load_state_arrays(model, arrays)


def assert_equal_averages(models, averages):
    for pair in ([average.model for average in averages], models):
        wanted, found = map(nn.state_arrays, pair)
        assert found.keys() == wanted.keys()
        for name, array in wanted.items():
            assert found[name].dtype == array.dtype
            np.testing.assert_allclose(found[name], array, TOLERANCE, TOLERANCE, err_msg=name)


def test_the_average_of_a_packed_model_equals_the_plain_one(models):
    """Through loaded states, a skipped update, and a model placed elsewhere and back."""
    for model, average in zip(*models, strict=True):
        for step in range(5):
            change(model, step)
            average.update(model)
        saved = nn.state_arrays(average.model)
        change(model, 6)
        average.update(model)
        nn.load_state_arrays(average.model, saved)
        spoiled = nn.state_arrays(model)
        name = next(name for name in spoiled if name.endswith("running_var"))
        nn.load_state_arrays(model, spoiled | {name: spoiled[name] * np.float32(np.nan)})
        average.update(model, ops.full((), 1))
        average.uncount_update()
        np.testing.assert_array_equal(nn.state_arrays(model)[name], saved[name])
        for dtype in ("float64", "float32"):
            nn.place(model, "cpu", dtype)
            nn.place(average.model, "cpu", dtype)
        change(model, 7)
        average.update(model)
    assert_equal_averages(*models)


def chosen(name, caplog):
    """Whether the fast updates are used, and the line that says so."""
    with caplog.at_level(logging.INFO, logger="train"):
        found = updates.choose_updates(name, NUMBER, "cpu", "float32")
    (line,) = caplog.messages
    return found, line


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_with_the_flag_one_line_says_what_runs(name, caplog):
    is_fast, line = chosen(name, caplog)
    wanted = f"--multi_tensor_optimizer: {multi_tensor.describe(name, 'cpu')}"
    assert is_fast and line.partition(";")[0] == wanted


class Forgetful(optim.SGD):
    """SGD that takes the first group's rate for all."""

    def step(self, learning_rates, momentum, lost=None):
        super().step([learning_rates[0]] * len(learning_rates), momentum, lost)


class Blind(optim.SGD):
    """SGD that steps though the step is lost."""

    def step(self, learning_rates, momentum, lost=None):
        super().step(learning_rates, momentum)


def average_though_lost(averages, values, decay, lost=None):
    ops.ema_update_(averages, values, decay)


def missing_kernel(*arguments):
    raise RuntimeError("Cannot find the kernel\n of the second line")


@dataclasses.dataclass
class Fast:
    """A namespace of which one update is not as it should be."""

    SGD: object = multi_tensor.SGD
    ema_update_: object = multi_tensor.ema_update_


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (Fast(SGD=Forgetful), "tensor 1 differs by"),
        (Fast(SGD=Blind), "tensor 1 differs by nan"),
        (Fast(ema_update_=average_though_lost), "EMA of tensor 0 differs by"),
        (Fast(SGD=missing_kernel), "RuntimeError: Cannot find the kernel"),
        (Fast(ema_update_=missing_kernel), "RuntimeError: Cannot find the kernel"),
    ],
    ids=["wrong step", "step though lost", "average though lost", "no step", "no average"],
)
def test_a_wrong_or_missing_kernel_leaves_the_updates_to_the_plain_path(
    wrong, reason, caplog, monkeypatch
):
    monkeypatch.setattr(updates, "multi_tensor", wrong)
    monkeypatch.setattr(ema, "multi_tensor", wrong)
    is_fast, line = chosen("SGD", caplog)
    assert not is_fast
    assert line.startswith(f"--multi_tensor_optimizer: using the plain path ({reason}")
