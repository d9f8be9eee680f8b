"""The device decides whether an update happens; the host reads of it later, and waits for nothing.

A CPU queues nothing, so what is counted here is what a GPU would be asked.
"""

from functools import partial

import numpy as np
import pytest

from duet.backend import nn
from duet.models.training.checkpointing import capture, restore
from duet.models.training.optimizer import INITIAL, LossScale
from duet.models.training.step import settle, train_step
from duet.models.training.step_watch import StageTimer
from duet.utils.cli.hyperparameters import DEFAULT_HYPERPARAMETERS, read_hyperparameters
from duet.utils.cli.train_config import parse_train_flags
from duet.utils.state.job import Job, TrainData
from duet.utils.state.run import Run
from tests.train.short_runs import losing, small_training

FAST = "--multi_tensor_optimizer"


@pytest.fixture(scope="module")
def training(tmp_path_factory):
    """A function to a state that makes an update of each batch, and six batches."""
    start, batches = small_training(tmp_path_factory.mktemp("inputs"), 2)
    return partial(start, "--img", "64", each=True), batches


def arrays_of(state):
    sections = (nn.state_arrays(state.model), nn.state_arrays(state.ema.model))
    named = (state.optimizer.state_arrays(), *sections)
    return {f"{i} {name}": x for i, arrays in enumerate(named) for name, x in arrays.items()}


def run_in(folder):
    config = parse_train_flags(["--img", "64"])
    hyp = read_hyperparameters(DEFAULT_HYPERPARAMETERS)
    return Run(Job(config, hyp, TrainData(tuple("abc"), [], [])), folder)


@pytest.mark.parametrize("optimizer", ["SGD", "Adam", "AdamW"])
@pytest.mark.parametrize("flags", [(), (FAST,)], ids=["plain", "fast"])
def test_update_result_does_not_depend_on_when_it_is_read(training, optimizer, flags):
    start, batches = training
    ends = []
    for reads_at_once in (True, False):
        state = losing(start("--optimizer", optimizer, *flags), {0, 2, 3})
        for batch in batches:
            train_step(state, batch, StageTimer())
            if reads_at_once:
                settle(state)
        settle(state)
        assert (state.ema.updates, state.watch.skipped) == (3, 3)
        assert np.isfinite(state.watch.end_epoch()).all()
        ends.append((arrays_of(state), str(state.watch.state())))
    (wanted, read), (found, read_later) = ends
    assert read == read_later
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        assert np.isfinite(array).all(), name
        np.testing.assert_array_equal(found[name], array, err_msg=name)


@pytest.mark.parametrize("optimizer", ["SGD", "Adam"])
def test_state_saved_after_a_lost_update_resumes_exactly(training, tmp_path, optimizer):
    start, batches = training
    flags = (FAST, "--optimizer", optimizer)
    whole = losing(start(*flags), {2})
    for batch in batches:
        train_step(whole, batch, StageTimer())
    stopped, resumed = losing(start(*flags), {2}), start(*flags)
    for batch in batches[:3]:
        train_step(stopped, batch, StageTimer())
    assert stopped.watch.skipped == 0  # nobody has read of it
    run = run_in(tmp_path)
    checkpoint = capture(run, stopped)
    assert (checkpoint.header.ema_updates, checkpoint.header.progress["watch"]["skipped"]) == (2, 1)
    restore(run, resumed, checkpoint)
    for batch in batches[3:]:
        train_step(resumed, batch, StageTimer())
    for state in (whole, resumed):
        settle(state)
    assert str(whole.watch.state()) == str(resumed.watch.state())
    found = arrays_of(resumed)
    for name, array in arrays_of(whole).items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)


@pytest.mark.parametrize("before", ["float32", "float16"])
def test_run_resumed_in_float16_has_a_loss_scale(training, tmp_path, before):
    start, _ = training
    begun, resumed, run = start(), start(), run_in(tmp_path)
    begun.loss_scale = LossScale.of_precision(before)
    begun.loss_scale.value /= 4 if begun.loss_scale.adapts else 1
    resumed.loss_scale = LossScale.of_precision("float16")
    restore(run, resumed, capture(run, begun))
    assert resumed.loss_scale.value == INITIAL / (4 if before == "float16" else 1)
