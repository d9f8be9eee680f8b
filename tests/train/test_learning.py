"""The training step learns, accumulates, and stops when the loss is lost."""

import dataclasses

import numpy as np
import pytest

from duet.backend import nn, ops
from duet.models.heads.base import LossTerms
from duet.models.training.step import settle, train_step
from duet.models.training.step_watch import StageTimer
from tests.small import write_small_model, write_tiny_model
from tests.train.short_runs import small_training


@pytest.fixture(scope="module")
def training(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    start, batches = small_training(folder, 4, write_small_model)
    tiny = write_tiny_model(folder)

    def start_either(*flags, deep=True, **changes):
        return start(*flags, **({} if deep else {"cfg": tiny}), **changes)

    return start_either, batches


def total(terms):
    return float(ops.to_numpy(terms.total))


def test_batch_of_black_images_does_not_skip_its_update(training):
    """BatchNorm of constant maps multiplies gradients by 32 a layer: up to 1e35, yet finite."""
    start, batches = training
    state = start(each=True)
    before = nn.state_arrays(state.model)
    train_step(state, batches[0]._replace(images=np.zeros_like(batches[0].images)), StageTimer())
    assert state.watch.skipped == 0
    after = nn.state_arrays(state.model)
    assert all(np.isfinite(array).all() for array in after.values())
    assert any(
        (after[name] != before[name]).any() for name in after if name.endswith("conv.weight")
    )
    assert state.ema.updates == 1


def test_accumulated_gradients_are_the_sum_over_batches(training):
    start, batches = training
    gradients = []
    for chosen in ((0,), (1,), (0, 1)):
        state = start(dtype="float64")
        warm = dataclasses.replace(state.schedule.hyp, warmup_epochs=0)
        state.schedule = dataclasses.replace(state.schedule, hyp=warm)
        state.last_update = 0  # so that the next 16 batches only accumulate
        for index in chosen:
            train_step(state, batches[index], StageTimer())
        gradients.append(
            {name: ops.to_numpy(p.grad) for name, p in nn.named_parameters(state.model)}
        )
    first, second, both = gradients
    for name in both:
        scale = np.abs(both[name]).max()
        np.testing.assert_allclose(
            first[name] + second[name], both[name], rtol=0, atol=1e-9 * scale, err_msg=name
        )


def spoil(state, name="model.0.conv.weight"):
    """Make one tensor of the model NaN."""
    arrays = nn.state_arrays(state.model)
    nn.load_state_arrays(state.model, {**arrays, name: np.full_like(arrays[name], np.nan)})


def test_non_finite_update_is_skipped_counted_and_named(training, caplog):
    start, batches = training
    state = start(deep=False)
    train_step(state, batches[0], StageTimer())
    weights = {name: ops.to_numpy(x) for name, x in nn.named_parameters(state.model)}
    momentum = state.optimizer.state_arrays()
    spoil(state, "model.0.bn.running_mean")  # read by no training step; the loss comes next
    plain = state.step_loss

    def lost(raw, targets, whole):
        terms = plain(raw, targets, whole)
        bad = terms.by_name["box"] * float("nan")
        return LossTerms({**terms.by_name, "box": bad}, terms.total + bad)

    state.step_loss = lost
    train_step(state, batches[1], StageTimer())
    state.step_loss = plain
    settle(state)
    indices = batches[1].sample_indices.tolist()
    assert f"epoch 1, step 2, images {indices}" in caplog.text
    assert state.watch.skipped == 1 and state.ema.updates == 1
    for name, x in nn.named_parameters(state.model):
        np.testing.assert_array_equal(ops.to_numpy(x), weights[name], err_msg=name)
        assert x.grad is None or not ops.to_numpy(x.grad).any(), name
    for name, array in state.optimizer.state_arrays().items():
        np.testing.assert_array_equal(array, momentum[name], err_msg=name)
    assert all(np.isfinite(array).all() for array in nn.state_arrays(state.model).values())
    train_step(state, batches[2], StageTimer())
    settle(state)
    assert state.ema.updates == 2
    assert np.isfinite(state.watch.end_epoch()).all()  # of the two batches that counted
