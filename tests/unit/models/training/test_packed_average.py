"""The average of a packed model equals the plain average, whatever has happened to the model."""

import importlib

import numpy as np
import pytest

import backend
from backend import multi_tensor, nn, ops, optim
from models.training.ema import ModelEMA
from models.training.multi_tensor import Updates
from tests.conformance.checks_modules import build
from tests.conformance.checks_optim import backward
from tests.conformance.judging import Backend, uniform

# Fifty updates round values up to 4 by 2e-7 each, in another order.
TOLERANCE = 1e-5
B = Backend()


@pytest.fixture
def models():
    """Two equal models, a part frozen, and their averages, plain and of packed memory."""
    models = [nn.place(build(B), "cpu", "float32") for _ in range(2)]
    for model in models:
        change(model, 100)
        nn.set_trainable([model.stem.conv.weight], False)
    plain = Updates(optim, ops.ema_update_).average_of(models[0])
    return models, [plain, Updates(multi_tensor, multi_tensor.ema_update_).average_of(models[1])]


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
    wanted, found = (nn.state_arrays(average.model) for average in averages)
    assert list(found) == list(wanted)
    for name, array in wanted.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_allclose(found[name], array, TOLERANCE, TOLERANCE, err_msg=name)
    wanted, found = (nn.state_arrays(model) for model in models)
    assert all(np.array_equal(found[name], array) for name, array in wanted.items())


def test_fifty_updates_equal_the_plain_ones(models):
    (first, second), averages = models
    start = nn.state_arrays(averages[0].model)
    for step in range(50):
        for model, average in zip((first, second), averages, strict=True):
            change(model, step)
            average.update(model)
    assert_equal_averages(*models)
    held = nn.state_arrays(averages[1].model)
    unequal = [name for name, array in start.items() if not np.array_equal(held[name], array)]
    assert set(unequal) == {name for name, x in start.items() if x.dtype == np.float32}
    frozen = [p.requires_grad for _, p in nn.named_parameters(second)]
    assert frozen == [p.requires_grad for _, p in nn.named_parameters(first)]
    assert any(frozen) and not all(frozen)


def test_a_loaded_average_and_statistics_of_a_skipped_update_are_followed(models):
    for model, average in zip(*models, strict=True):
        average.update(model)
        saved = nn.state_arrays(average.model)
        change(model, 1)
        average.update(model)
        nn.load_state_arrays(average.model, saved)
        spoiled = nn.state_arrays(model)
        name = next(name for name in spoiled if name.endswith("running_var"))
        nn.load_state_arrays(model, spoiled | {name: spoiled[name] * np.float32(np.nan)})
        average.update(model, ops.full((), 1))
        average.uncount_update()
        np.testing.assert_array_equal(nn.state_arrays(model)[name], saved[name])
        change(model, 2)
        average.update(model)
    assert_equal_averages(*models)


def test_a_value_that_is_not_a_number_spoils_its_own_average_alone(models):
    for model, average in zip(*models, strict=True):
        arrays = nn.state_arrays(model)
        name = next(name for name in arrays if name.endswith("conv.weight"))
        arrays[name][0, 0, 0, 0] = np.nan
        nn.load_state_arrays(model, arrays)
        average.update(model)
        held = nn.state_arrays(average.model)
        assert sum(np.isnan(array).sum() for array in held.values()) == 1
        assert np.isnan(held[name][0, 0, 0, 0])


def test_a_model_placed_elsewhere_and_back_is_followed_again(models):
    for model, average in zip(*models, strict=True):
        for dtype in ("float64", "float32"):
            average.update(model)
            nn.place(model, "cpu", dtype)
            nn.place(average.model, "cpu", dtype)
        change(model, 3)
        average.update(model)
    assert_equal_averages(*models)


def test_an_average_of_another_model_follows_that_one(models):
    (first, second), averages = models
    change(first, 5)
    for average in averages:
        average.update(first)
    change(second, 5)
    assert_equal_averages(*models)


def turned(weight, bias):
    """A module of which the memory of the (O, I, H, W) weight is in the order O, H, W, I."""
    module = nn.Module()
    nn.register_buffer(module, "weight", weight)
    nn.register_buffer(module, "bias", bias)
    rows = np.ascontiguousarray(weight.transpose(0, 2, 3, 1))
    module.weight = ops.tensor(rows).permute(0, 3, 1, 2)
    return module


@pytest.mark.parametrize("value_is_turned", [True, False])
def test_weights_in_another_order_of_memory_are_averaged(value_is_turned):
    weights = [uniform((4, 3, 2, 2), "float32", seed=seed) for seed in (0, 1)]
    biases = [uniform((5,), "float32", seed=seed) for seed in (2, 3)]
    average, value = (turned(*arrays) for arrays in zip(weights, biases, strict=True))
    if not value_is_turned:
        value.weight = ops.tensor(weights[1])
    for module in (average, value):
        nn.pack(module)
    multi_tensor.ema_update_(nn.float_tensors(average)(), nn.float_tensors(value)(), 0.25)
    held = nn.state_arrays(average)
    for name, (start, end) in (("weight", weights), ("bias", biases)):
        np.testing.assert_allclose(held[name], 0.25 * start + 0.75 * end, rtol=1e-6, atol=1e-6)


def test_what_lies_between_the_averages_is_left_alone():
    rows = [ops.tensor(uniform((6, 4), seed=seed)) for seed in (0, 1)]
    before, values = (ops.to_numpy(row) for row in rows)
    averages, followed = ([row[0], row[1], row[3]] for row in rows)
    multi_tensor.ema_update_(averages, followed, 0.5)
    expected = before.copy()
    expected[[0, 1, 3]] = 0.5 * before[[0, 1, 3]] + 0.5 * values[[0, 1, 3]]
    np.testing.assert_allclose(ops.to_numpy(rows[0]), expected, rtol=1e-14)


def test_tensors_side_by_side_in_another_order_are_averaged_each_with_its_own():
    rows = [ops.tensor(uniform((3, 4), seed=seed)) for seed in (0, 1)]
    before, values = (ops.to_numpy(row) for row in rows)
    averages, followed = [rows[0][i] for i in (0, 1, 2)], [rows[1][i] for i in (2, 0, 1)]
    multi_tensor.ema_update_(averages, followed, 0.5)
    expected = 0.5 * before + 0.5 * values[[2, 0, 1]]
    np.testing.assert_allclose(ops.to_numpy(rows[0]), expected, rtol=1e-14)


def test_the_optimizer_goes_on_with_a_packed_model():
    found = []
    for pack in (lambda module: None, nn.pack):
        module = nn.Conv2d(3, 5, 3)
        arrays = nn.state_arrays(module)
        shapes = {name: array.shape for name, array in arrays.items()}
        nn.load_state_arrays(
            module, {name: uniform(shape, "float32", seed=1) for name, shape in shapes.items()}
        )
        parameters = dict(nn.named_parameters(module))
        optimizer = multi_tensor.SGD([(parameters, 1e-3)])
        for step in range(4):
            if step == 2:
                pack(module)
            optimizer.zero_grad()
            gradients = {n: uniform(s, "float32", seed=step) for n, s in shapes.items()}
            backward(B, parameters, gradients)
            optimizer.step([0.1], 0.9)
        found.append(nn.state_arrays(module) | optimizer.state_arrays())
    plain, packed = found
    for name, array in plain.items():
        # The same kernels on other addresses.
        np.testing.assert_allclose(packed[name], array, 1e-6, 1e-6, err_msg=name)


def test_a_large_module_keeps_its_state_in_the_memory_that_it_is_given():
    module = nn.Conv2d(256, 256, 3)  # 2.3 MB, more than a huge page
    state = nn.state_arrays(module)
    nn.pack(module)
    average = nn.frozen_copy(module)
    nn.pack(average)
    nn.load_state_arrays(module, {name: 2 * array for name, array in state.items()})
    multi_tensor.ema_update_(nn.float_tensors(average)(), nn.float_tensors(module)(), 0.5)
    for name, array in nn.state_arrays(average).items():
        np.testing.assert_allclose(array, 1.5 * state[name], rtol=1e-6)


@pytest.mark.skipif(backend.use() != "torch", reason="only PyTorch's tensors are packed")
def test_the_packed_model_and_its_average_are_one_tensor_each(models):
    (_, model), (_, average) = models
    spans = importlib.import_module("backend.torch.multi_tensor").Spans()

    def found(average: ModelEMA):
        return spans.of(nn.float_tensors(average.model)(), nn.float_tensors(model)())

    floats = [x for x in nn.state_arrays(model).values() if x.dtype == np.float32]
    assert [x.shape for x in found(average)] == [(sum(x.size for x in floats),)] * 2
    assert found(ModelEMA(model)) is None  # a copy that nobody packed
    nn.place(model, "cpu", "float64")
    assert found(average) is None
