"""The updates of many tensors together equal the plain ones, and are used only where they do."""

import dataclasses
import logging

import numpy as np
import pytest

from backend import multi_tensor, nn, ops, optim
from models.training import fast
from models.training.fast import PLAIN, Updates
from tests.conformance.checks_modules import build
from tests.conformance.checks_optim import backward
from tests.conformance.judging import Backend, uniform
from utils.cli.recipe_config import OPTIMIZERS
from utils.cli.train_config import parse_train_flags

STEPS = 50
# Largest difference after 50 steps of weights of about 1. A few roundings a step, of 6e-8 and
# 1e-16, add up; Adam divides by the root of a small number, which carries them on.
TOLERANCES = {"float32": 1e-5, "float64": 1e-13}
SHAPES = {
    "conv.weight": (6, 4, 3, 3),
    "point.weight": (8, 6, 1, 1),
    "conv.bias": (5,),
    "bn.weight": (),
    "late.weight": (3, 2),
    "unused.weight": (4,),
}
B = Backend()
NUMBER = 20  # tensors of a model


def leaves(dtype):
    arrays = {n: uniform(shape, dtype, seed=i) for i, (n, shape) in enumerate(SHAPES.items())}
    return {name: B.autograd.variable(array) for name, array in arrays.items()}


def three_groups(tensors):
    biases = {"conv.bias": tensors["conv.bias"], "unused.weight": tensors["unused.weight"]}
    weights = {name: tensors[name] for name in ("conv.weight", "point.weight", "late.weight")}
    return [(biases, 0.0), (weights, 5e-4), ({"bn.weight": tensors["bn.weight"]}, 0.0)]


def settings_of(step):
    """Rates and momentum of a warm-up that at two steps has none."""
    share = (step + 1) / STEPS
    momentum = 0.0 if step in (0, 20) else 0.8 + 0.137 * share
    return (0.1 * (1 - share), 0.01 * share, 0.0 if step == 7 else 0.02), momentum


def gradients_of(step, dtype):
    """Of every weight but one, and of one from the sixth step on."""
    names = [n for n in SHAPES if n != "unused.weight" and (n != "late.weight" or step >= 5)]
    return {n: uniform(SHAPES[n], dtype, seed=1000 + 10 * step + i) for i, n in enumerate(names)}


def assert_close(found, wanted, tolerance):
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_allclose(found[name], array, rtol=tolerance, atol=tolerance, err_msg=name)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_fifty_steps_equal_those_of_the_plain_optimizer(name, dtype):
    pairs = []
    for namespace in (optim, multi_tensor):
        tensors = leaves(dtype)
        averages = [ops.tensor(ops.to_numpy(x)) for x in tensors.values()]
        pairs.append((tensors, getattr(namespace, name)(three_groups(tensors)), averages))
    for step in range(STEPS):
        rates, momentum = settings_of(step)
        for (tensors, optimizer, averages), namespace in zip(
            pairs, (ops, multi_tensor), strict=True
        ):
            optimizer.zero_grad()
            backward(B, tensors, gradients_of(step, dtype))
            optimizer.step(rates, momentum)
            namespace.ema_update_(averages, list(tensors.values()), 0.9)
    plain, together = (
        {n: ops.to_numpy(x) for n, x in tensors.items()}
        | {f"average {i}": ops.to_numpy(x) for i, x in enumerate(averages)}
        | optimizer.state_arrays()
        for tensors, optimizer, averages in pairs
    )
    assert_close(together, plain, TOLERANCES[dtype])
    assert not any(key.startswith("unused.weight.") for key in together)


@pytest.fixture
def models():
    """Two equal models, a part frozen, and their averages, plain and of packed memory."""
    models = [nn.place(build(B), "cpu", "float32") for _ in range(2)]
    for model in models:
        change(model, 100)
        nn.set_trainable([model.stem.conv.weight], False)
    packed = Updates(multi_tensor, multi_tensor.ema_update_)
    return models, [PLAIN.average_of(models[0]), packed.average_of(models[1])]


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
        assert_close(found, wanted, TOLERANCES["float32"])


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


def chosen(name, caplog, *flags):
    """Whether the fast updates are used, and the lines that say so."""
    config = parse_train_flags(["--cfg", "models/yolov5n.yaml", "--optimizer", name, *flags])
    with caplog.at_level(logging.INFO, logger="train"):
        updates = fast.choose_updates(config, NUMBER, "cpu", "float32")
    return updates is not PLAIN, [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_with_the_flag_one_line_says_what_runs(name, caplog):
    assert chosen(name, caplog) == (False, [])
    is_fast, lines = chosen(name, caplog, "--multi_tensor_optimizer")
    wanted = f"--multi_tensor_optimizer: {multi_tensor.describe(name, 'cpu')}"
    assert is_fast and [line.partition(";")[0] for line in lines] == [wanted]


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
        (Fast(SGD=Forgetful), "its tensor 1 differs by"),
        (Fast(SGD=Blind), "its tensor 1 differs by nan"),
        (Fast(ema_update_=average_though_lost), "its EMA of tensor 0 differs by"),
        (Fast(SGD=missing_kernel), "RuntimeError: Cannot find the kernel"),
        (Fast(ema_update_=missing_kernel), "RuntimeError: Cannot find the kernel"),
    ],
    ids=["wrong step", "step though lost", "average though lost", "no step", "no average"],
)
def test_a_wrong_or_missing_kernel_leaves_the_updates_to_the_plain_path(
    wrong, reason, caplog, monkeypatch
):
    monkeypatch.setattr(fast, "multi_tensor", wrong)
    is_fast, (line,) = chosen("SGD", caplog, "--multi_tensor_optimizer")
    assert not is_fast
    assert line.startswith(f"--multi_tensor_optimizer: the plain path is used ({reason}")
