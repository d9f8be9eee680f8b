"""The updates of many tensors together equal the plain ones, and are used only where they do."""

import dataclasses
import logging
from itertools import islice

import numpy as np
import pytest

from backend import multi_tensor, nn, ops, optim
from models.proof import find_problem
from models.training import multi_tensor as choice
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
# Of tensors of a model, and of those that a kernel takes at a time: 7 would never cross a chunk.
NUMBER, CHUNK = 120, 50


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
    unused = ops.to_numpy(pairs[0][0]["unused.weight"])
    for step in range(STEPS):
        rates, momentum = settings_of(step)
        for (tensors, optimizer, averages), namespace in zip(
            pairs, (ops, multi_tensor), strict=True
        ):
            optimizer.zero_grad()
            backward(B, tensors, gradients_of(step, dtype))
            optimizer.step(rates, momentum)
            namespace.ema_update_(averages, list(tensors.values()), 0.9)
    plain, fast = (
        {n: ops.to_numpy(x) for n, x in tensors.items()}
        | {f"average {i}": ops.to_numpy(x) for i, x in enumerate(averages)}
        | optimizer.state_arrays()
        for tensors, optimizer, averages in pairs
    )
    assert_close(fast, plain, TOLERANCES[dtype])
    np.testing.assert_array_equal(fast["unused.weight"], unused)
    assert not any(key.startswith("unused.weight.") for key in fast)


def turned(array):
    """A leaf of this (O, I, H, W) whose memory is in the order O, H, W, I: channels-last."""
    leaf = ops.tensor(np.ascontiguousarray(array.transpose(0, 2, 3, 1))).permute(0, 3, 1, 2)
    nn.set_trainable([leaf], True)
    return leaf


def stepped(namespace, name, leaf):
    """A leaf after three steps, before each of which the state is loaded in the usual order."""
    state = {}
    for step in range(3):
        optimizer = getattr(namespace, name)([({"x": leaf}, 0.1)])
        optimizer.load_state_arrays(state)
        optimizer.zero_grad()
        backward(B, {"x": leaf}, {"x": uniform(leaf.shape, seed=step)})
        optimizer.step([0.1], 0.9)
        state = optimizer.state_arrays()
    return {"x": ops.to_numpy(leaf), **state}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_weights_in_another_order_of_memory_are_updated(name):
    array = uniform((4, 3, 3, 3))
    wanted = stepped(optim, name, B.autograd.variable(array))
    plain = stepped(optim, name, turned(array))
    if not np.allclose(plain["x"], wanted["x"], rtol=1e-13):
        pytest.skip("this framework's own optimizer cannot update such weights")
    assert_close(stepped(multi_tensor, name, turned(array)), wanted, 1e-13)


def test_averages_in_another_order_of_memory_are_updated():
    average, value = uniform((4, 3, 2)), uniform((4, 3, 2), seed=1)
    turned = [ops.tensor(array).permute(0, 2, 1) for array in (average, value)]
    straight = ops.tensor(np.ascontiguousarray(value.transpose(0, 2, 1)))
    for values in (turned[1], straight):
        multi_tensor.ema_update_([turned[0]], [values], 0.5)
        average = 0.5 * average + 0.5 * value
    np.testing.assert_allclose(ops.to_numpy(turned[0]), average.transpose(0, 2, 1), rtol=1e-14)


def config(name, *flags):
    return parse_train_flags(["--cfg", "models/yolov5n.yaml", "--optimizer", name, *flags])


def chosen(name, caplog, *flags):
    """What is used, as (fast optimizer, fast average), and the lines that say so."""
    with caplog.at_level(logging.INFO, logger="train"):
        updates = choice.choose_updates(config(name, *flags), NUMBER, "cpu", "float32")
    fast = (updates.optimizers is not optim, updates.average is not ops.ema_update_)
    return fast, [record.getMessage() for record in caplog.records]


def test_without_the_flag_the_plain_updates_run_and_nothing_is_said(caplog):
    assert chosen("SGD", caplog) == ((False, False), [])


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_with_the_flag_one_line_says_what_runs(name, caplog):
    fast, lines = chosen(name, caplog, "--multi_tensor_optimizer")
    assert fast == (True, True)
    wanted = f"--multi_tensor_optimizer: {multi_tensor.describe(name, 'cpu')}"
    assert [line.partition(";")[0] for line in lines] == [wanted]


class Forgetful(optim.SGD):
    """SGD that takes the first group's rate for all."""

    def step(self, learning_rates, momentum, lost=None):
        super().step([learning_rates[0]] * len(learning_rates), momentum, lost)


class FirstChunk(optim.SGD):
    """SGD that leaves out what is behind the first chunk of a list."""

    def __init__(self, groups):
        super().__init__([(dict(islice(group.items(), CHUNK)), decay) for group, decay in groups])


class Blind(optim.SGD):
    """SGD that steps though the step is lost."""

    def step(self, learning_rates, momentum, lost=None):
        super().step(learning_rates, momentum)


def first_averages(averages, values, decay, lost=None):
    ops.ema_update_(averages[:CHUNK], values[:CHUNK], decay, lost)


def average_though_lost(averages, values, decay, lost=None):
    ops.ema_update_(averages, values, decay)


def rounded_average(averages, values, decay, lost=None):
    """The formula of two products, which moves an average that equals its value."""
    if ops.to_numpy(lost):
        return
    for average, value in zip(averages, values, strict=True):
        average.copy_(average * decay + value.detach() * (1.0 - decay))


def missing_kernel(*arguments):
    raise RuntimeError("Cannot find the kernel\n of the second line")


@dataclasses.dataclass
class Fast:
    """A namespace of which one update is not as it should be."""

    SGD: object = multi_tensor.SGD
    ema_update_: object = multi_tensor.ema_update_


@pytest.mark.parametrize(
    ("fast", "used", "line"),
    [
        (
            Fast(SGD=Forgetful),
            (False, True),
            "SGD: the plain path is used",
        ),
        (Fast(SGD=Blind), (False, True), "SGD: the plain path is used"),
        (Fast(ema_update_=average_though_lost), (True, False), "its EMA of tensor 0"),
        (Fast(SGD=missing_kernel), (False, True), "RuntimeError: Cannot find the kernel"),
        (Fast(ema_update_=rounded_average), (True, False), "its equal EMA"),
        (Fast(ema_update_=missing_kernel), (True, False), "EMA of the weights: the plain path"),
    ],
    ids=[
        "wrong step",
        "step though lost",
        "average though lost",
        "no step",
        "wrong average",
        "no average",
    ],  # fmt: skip
)
def test_a_wrong_or_missing_kernel_leaves_its_part_to_the_plain_path(
    fast, used, line, caplog, monkeypatch
):
    monkeypatch.setattr(choice, "multi_tensor", fast)
    found, lines = chosen("SGD", caplog, "--multi_tensor_optimizer")
    assert found == used
    assert len(lines) == 1 and line in lines[0]


def test_a_gpu_is_tried_on_as_many_tensors_as_the_model_has():
    assert choice.proof_size(NUMBER, "cuda:0") == NUMBER
    assert choice.proof_size(NUMBER, "cpu") == choice.proof_size(2, "cuda:0") == len(choice.SHAPES)


@pytest.mark.parametrize("number", [len(choice.SHAPES), NUMBER], ids=["few", "many"])
def test_many_tensors_show_what_a_kernel_does_behind_its_first_chunk(number):
    trial = choice.Trial(number, "cpu", "float32")

    def problem(run, fast, plain):
        return find_problem(lambda: run(fast), lambda: run(plain), choice.TOLERANCE["float32"])

    step = problem(
        lambda found: choice.try_optimizer(found, "SGD", trial), Fast(SGD=FirstChunk), optim
    )
    average = problem(
        lambda found: choice.try_average(found, nn.pack, trial), first_averages, ops.ema_update_
    )
    assert bool(step) is bool(average) is (number > CHUNK)
