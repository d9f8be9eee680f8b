"""`checkpointing.py`: every part has a kind; what goes on in as many processes, or in others."""

import dataclasses
import json
import os
from types import SimpleNamespace

import numpy as np
import pytest

import backend
from backend import autograd, nn, ops
from models.detector import Detector
from models.graph import read_model_yaml
from models.training.checkpointing import (
    ARRAYS,
    VALUES,
    capture,
    differences,
    restore,
    restore_gradients,
)
from models.training.state import build_state
from tests.small import write_tiny_model
from utils.cli.hyperparameters import DEFAULT_HYPERPARAMETERS, read_hyperparameters
from utils.cli.train_config import parse_train_flags
from utils.errors import UserError
from utils.state.checkpoint import KINDS, SECTIONS
from utils.state.progress import PROGRESS, read_progress
from utils.state.run import Run


@pytest.fixture
def state(tmp_path):
    cfg = write_tiny_model(tmp_path)
    config = parse_train_flags(["--cfg", str(cfg), "--freeze", "1", "--img", "64"])
    model = Detector(read_model_yaml(cfg, 5))
    model.initialize(seed=0)
    hyp = read_hyperparameters(DEFAULT_HYPERPARAMETERS)
    return build_state(config, hyp, model, batches=3, device="cpu")


@pytest.fixture
def run(tmp_path):
    config = parse_train_flags(["--img", "64"])
    hyp = read_hyperparameters(DEFAULT_HYPERPARAMETERS)
    samples = {"images": 3, "sha256": "5a", "polygons": ""}
    return Run(config, hyp, tuple("abcde"), tmp_path, data={"train": samples, "val": samples})


def test_what_is_captured_is_what_the_kinds_describe_and_all_parts_are_in_it(run, state):
    checkpoint = capture(run, state)
    progress = checkpoint.header.progress
    assert progress.keys() == PROGRESS.keys()
    assert read_progress(json.loads(json.dumps(progress))) == progress
    assert {part.name for part in VALUES} < progress.keys() | KINDS.keys()
    assert tuple(part.name for part in ARRAYS) == SECTIONS


def test_a_state_of_other_losses_is_refused_by_their_names(run, state):
    checkpoint = capture(run, state)
    header = checkpoint.header
    progress = {**header.progress, "loss_names": ["mask", "box"]}
    other = dataclasses.replace(header, progress=progress)
    with pytest.raises(UserError, match="does not fit this model: its losses are mask, box"):
        restore(run, state, dataclasses.replace(checkpoint, header=other))


def drawn(state, seed):
    """A gradient for each trained parameter, with zeros of both signs and extremes in it."""
    generator = np.random.default_rng(seed)
    arrays = {}
    for name, x in nn.named_parameters(state.model):
        if x.requires_grad:
            array = generator.standard_normal(x.shape).astype(np.float32)
            array.reshape(-1)[:4] = (-0.0, 1e-42, 3e38, -1e-30)[: array.size]
            arrays[name] = array
    return arrays


def gradients(state):
    return {
        name: ops.to_numpy(x.grad)
        for name, x in nn.named_parameters(state.model)
        if x.grad is not None
    }


def assert_same_bits(found, expected):
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert found[name].tobytes() == array.tobytes(), name


def test_gradients_come_back_bit_for_bit_and_frozen_parameters_get_none(state):
    expected = drawn(state, 0)
    assert len(expected) < len(list(nn.named_parameters(state.model)))
    restore_gradients(state, {f"0/{name}": array for name, array in expected.items()})
    assert_same_bits(gradients(state), expected)


def test_gradients_of_infinity_come_back_for_the_update_to_find(state):
    (name, x), *_ = [pair for pair in nn.named_parameters(state.model) if pair[1].requires_grad]
    array = np.full(x.shape, np.nan, np.float32)
    array.reshape(-1)[0] = np.inf
    autograd.set_gradients({name: x}, {name: array})
    np.testing.assert_array_equal(ops.to_numpy(x.grad), array)


def test_without_pending_gradients_they_are_as_an_update_leaves_them(state):
    restore_gradients(state, {})
    restored = gradients(state)
    restore_gradients(state, by_rank([drawn(state, 0)]))
    state.optimizer.zero_grad()
    assert restored.keys() == gradients(state).keys()
    assert not any(array.any() for array in restored.values())


@pytest.mark.parametrize("rank", [0, 1])
def test_each_of_as_many_ranks_gets_its_own(state, monkeypatch, rank):
    for variable, value in (("RANK", rank), ("LOCAL_RANK", rank), ("WORLD_SIZE", 2)):
        monkeypatch.setitem(os.environ, variable, str(value))
    both = [drawn(state, seed) for seed in (0, 1)]
    restore_gradients(state, by_rank(both))
    assert_same_bits(gradients(state), both[rank])


def test_on_another_number_of_ranks_each_gets_the_mean(state):
    both = [drawn(state, seed) for seed in (0, 1)]
    restore_gradients(state, by_rank(both))
    expected = {name: (both[0][name] / 2 + both[1][name] / 2) for name in both[0]}
    for name, array in gradients(state).items():
        assert array.dtype == np.float32
        np.testing.assert_allclose(array, expected[name], rtol=1e-6, atol=1e-44)  # rounding


@pytest.mark.parametrize(
    ("before", "flags", "told"),
    [
        (1, [], []),
        (2, [], ["it ran as 2 processes, now as 1: without --sync-bn BatchNorm differs"]),
        (2, ["--sync-bn"], ["it ran as 2 processes, now as 1: sums round differently"]),
    ],
)
def test_a_run_that_goes_on_in_another_number_of_processes_says_what_that_changes(
    before, flags, told
):
    header = SimpleNamespace(backend=backend.use(), progress={"world_size": before})
    assert list(differences(header, parse_train_flags(flags).sync_bn)) == told


def by_rank(ranks):
    return {f"{rank}/{name}": x for rank, arrays in enumerate(ranks) for name, x in arrays.items()}
