"""--freeze holds the named parameters fixed, bit for bit, and nothing else."""

import dataclasses

import numpy as np
import pytest

from duet.backend import nn
from duet.models.training.optimizer import frozen_names, parameter_groups
from duet.models.training.step import train_step
from duet.models.training.step_watch import StageTimer
from duet.utils.errors import UserError
from tests.small import write_small_model
from tests.train.short_runs import small_training

NAMES = [
    "model.0.conv.weight",
    "model.0.bn.weight",
    "model.1.conv.weight",
    "model.10.conv.weight",
    "model.24.m.0.weight",
    "model.24.m.0.bias",
    "model.24.m.1.weight",
]
STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


@pytest.fixture(scope="module")
def training(tmp_path_factory):
    start, batches = small_training(tmp_path_factory.mktemp("inputs"), 4, write_small_model)

    def run(*flags):
        state = start(*flags)
        before = nn.state_arrays(state.model)
        # An update after each batch at a rate that moves every weight, which warm-up would not.
        strong = dataclasses.replace(state.schedule.hyp, warmup_epochs=0, lr0=0.1)
        state.schedule = dataclasses.replace(state.schedule, hyp=strong, batch_size=64)
        for batch in batches[:2]:
            train_step(state, batch, StageTimer())
        return before, state

    return run


def kept_names(before, after):
    """Names of the parameters, without statistics, whose bits are as before."""
    return {
        name
        for name in before
        if not name.endswith(STATISTICS) and np.array_equal(before[name], after[name])
    }


def layers_of(names):
    return {int(name.split(".")[1]) for name in names}


@pytest.mark.parametrize(
    ("flags", "layers"), [((), set()), (("10",), set(range(10))), (("0", "model.24"), {0, 24})]
)
def test_frozen_layers_stay_bit_for_bit_and_others_move(training, flags, layers):
    before, state = training(*(("--freeze", *flags) if flags else ()))
    assert state.ema.updates == 2
    names = {name for name, _ in nn.named_parameters(state.model)}
    frozen = {name for name in names if layers_of([name]) <= layers}
    buffers = {name for name in before if name not in names and not name.endswith(STATISTICS)}
    assert kept_names(before, nn.state_arrays(state.model)) == frozen | buffers
    assert kept_names(before, nn.state_arrays(state.ema.model)) == frozen | buffers


def test_optimizer_excludes_frozen_parameters(training):
    _, state = training("--freeze", "10")
    groups = parameter_groups(state.model, 0.0)
    trained = {10, 13, 14, 17, 18, 20, 21, 23, 24}
    assert layers_of(name for group, _ in groups for name in group) == trained
    assert layers_of(state.optimizer.state_arrays()) == trained


def test_frozen_batch_norm_keeps_gathering_statistics(training):
    before, state = training("--freeze", "10")
    after = nn.state_arrays(state.model)
    for layer in (0, 9):
        part = "bn" if layer == 0 else "cv1.bn"
        assert after[f"model.{layer}.{part}.num_batches_tracked"] == 2
        for name in ("running_mean", "running_var"):
            key = f"model.{layer}.{part}.{name}"
            assert not np.array_equal(after[key], before[key]), key


@pytest.mark.parametrize(
    ("freeze", "expected"),
    [
        (["0"], []),
        (["1"], NAMES[:2]),
        (["0", "10"], NAMES[:2] + NAMES[3:4]),
        (["model.1"], NAMES[2:3]),
        (["model.24.m"], NAMES[4:]),
        (["model.24.m.0.bias", "1"], [NAMES[2], NAMES[5]]),
        (["model"], NAMES),
    ],
)
def test_freeze_entries_name_first_single_layers_or_parts(freeze, expected):
    assert frozen_names(NAMES, 25, freeze) == expected


@pytest.mark.parametrize(
    ("freeze", "message"),
    [
        (["26"], "--freeze 26: the model has layers 0 to 24"),
        (["head"], "--freeze head matches no parameter; accepted: layers from 0 to 24, or names "
         "such as ([^,]*, ){2}model.24.m.1$"),
        (["-1"], "--freeze -1 matches no parameter; accepted: layers from 0 to 24, or names such"),
        (["model.24.m.O"], "matches no parameter; .*such as model.24.m.[01], model.24.m.[01]"),
    ],
)  # fmt: skip
def test_unknown_freeze_name_is_refused_with_alternatives(freeze, message):
    with pytest.raises(UserError, match=message):
        frozen_names(NAMES, 25, freeze)


def test_freezing_everything_is_refused(training):
    with pytest.raises(UserError, match="--freeze 25 freezes all layers"):
        training("--freeze", "25")
