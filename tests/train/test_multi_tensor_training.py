"""Training with --multi_tensor_optimizer gives what training without it gives."""

import dataclasses

import numpy as np
import pytest

from backend import nn, optim
from models.detector import Detector
from models.graph import read_model_yaml
from models.training.state import build_state
from models.training.step import train_step
from tests.small import write_small_dataset, write_small_model
from utils.cli.hyperparameters import DEFAULT_HYPERPARAMETERS, read_hyperparameters
from utils.cli.train_config import parse_train_flags
from utils.data.augment.strengths import AugmentConfig
from utils.data.loading.loader import TrainLoader
from utils.data.sources.dataset import load_dataset
from utils.data.sources.splits import load_split
from utils.report.stage_timer import StageTimer


@pytest.fixture(scope="module")
def training(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    data, cfg = write_small_dataset(folder), write_small_model(folder)
    dataset = load_dataset(data)
    loader = TrainLoader(load_split(dataset, "train"), 64, 2, AugmentConfig(), seed=0, workers=0)
    batches = list(loader.epoch(0))[:2]

    def run(*flags):
        """The state after an update for each of two batches, all in float64."""
        config = parse_train_flags(["--cfg", str(cfg), "--batch", "2", "--freeze", "3", *flags])
        hyp = dataclasses.replace(read_hyperparameters(DEFAULT_HYPERPARAMETERS), warmup_epochs=0)
        model = Detector(read_model_yaml(cfg, len(dataset.class_names)))
        model.initialize(seed=0)
        state = build_state(config, hyp, model, batches=3, device="cpu", dtype="float64")
        state.schedule = dataclasses.replace(state.schedule, batch_size=64)
        for batch in batches:
            train_step(state, batch, StageTimer())
        assert state.ema.updates == 2
        return state

    return run


@pytest.mark.parametrize("name", ["SGD", "Adam"])
def test_two_steps_give_the_same_weights_average_and_state(training, name):
    plain = training("--optimizer", name)
    fast = training("--optimizer", name, "--multi_tensor_optimizer")
    assert type(plain.optimizer) is getattr(optim, name)
    assert type(fast.optimizer) is not getattr(optim, name)
    for state_of in (
        lambda state: nn.state_arrays(state.model),
        lambda state: nn.state_arrays(state.ema.model),
        lambda state: state.optimizer.state_arrays(),
    ):
        wanted, found = state_of(plain), state_of(fast)
        assert found.keys() == wanted.keys()
        for key, array in wanted.items():
            # Rounding of the first step, carried through a forward and a backward pass.
            scale = np.abs(array).max(initial=0.1)
            assert np.abs(found[key] - array).max(initial=0) <= 1e-9 * scale, key
