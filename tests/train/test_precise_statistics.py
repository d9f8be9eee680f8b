"""--precise-bn in a run: what is validated is what is kept, also across interruptions."""

import csv

import numpy as np
import pytest

from backend import nn
from models.detector import Detector
from models.evaluation import evaluate
from models.stored import stored_spec
from tests.equal_runs import assert_equal_runs
from tests.train.short_runs import StopAt, folder_of, short_flags, start
from utils.cli.hyperparameters import read_hyperparameters
from utils.cli.train_config import TrainConfig
from utils.data.loading.loader import ValLoader
from utils.data.sources.dataset import load_dataset
from utils.data.sources.splits import load_split
from utils.processes.suspend import Suspended
from utils.state.checkpoint import load_checkpoint


@pytest.fixture(scope="module")
def flags(tmp_path_factory):
    return [*short_flags(tmp_path_factory.mktemp("inputs")), "--precise-bn", "2"]


@pytest.fixture(scope="module")
def whole(flags):
    """The folder of a run without interruption."""
    start([*flags, "--name", "whole"])
    return folder_of(flags, "whole")


@pytest.mark.parametrize("stop", [4, 7])  # in the validation, in the next epoch
def test_a_run_that_was_stopped_ends_as_one_that_was_not(flags, whole, stop):
    name = f"stopped{stop}"
    with pytest.raises(Suspended):
        start([*flags, "--name", name], StopAt(stop))
    start([*flags, "--resume", str(folder_of(flags, name))])
    assert_equal_runs(folder_of(flags, name), whole)


def test_training_itself_is_the_same_without_it(flags, whole):
    start([*flags, "--name", "without", "--precise-bn", "0"])
    with_it, without = (
        load_checkpoint(folder / "weights" / "last.safetensors")
        for folder in (whole, folder_of(flags, "without"))
    )
    for name, array in without.model.items():
        np.testing.assert_array_equal(with_it.model[name], array, name)
    differing = {
        name for name, x in without.ema.items() if not np.array_equal(with_it.ema[name], x)
    }
    assert differing == {name for name in without.ema if "running" in name}


def test_the_stored_weights_give_the_losses_of_the_last_validation(flags, whole):
    checkpoint = load_checkpoint(whole / "weights" / "last.safetensors")
    model = Detector(stored_spec(checkpoint.header.model, checkpoint.ema))
    nn.load_state_arrays(model, checkpoint.ema)
    dataset = load_dataset(flags[1])
    samples = load_split(dataset, "val")
    hyp = read_hyperparameters(TrainConfig().hyp)
    loss = model.head.make_loss(hyp, 64)
    loader = ValLoader(samples, 64, 8, 0, model.stride)
    found = evaluate(model.eval(), loader, samples, dataset.class_names, "cpu", loss=loss)
    with open(whole / "results.csv", newline="", encoding="utf-8") as file:
        row = list(csv.DictReader(file))[-1]
    for name, value in zip(("box", "obj", "cls"), found.losses, strict=True):
        # Written with five digits.
        assert float(row[f"val/{name}_loss"]) == pytest.approx(value, rel=2e-5)
