"""--precise-bn in a run: what is validated is what is kept, also across interruptions."""

import csv

import numpy as np
import pytest

import train
from backend import nn
from models.detector import Detector
from models.evaluation import evaluate
from models.heads.anchor.head import AnchorHead
from models.stored import stored_spec
from models.training import outputs
from tests.equal_runs import assert_equal_runs
from tests.small import write_small_dataset, write_tiny_model
from utils.cli.hyperparameters import read_hyperparameters
from utils.cli.train_config import TrainConfig, read_train_flags
from utils.data.loading.loader import ValLoader
from utils.data.sources.dataset import load_dataset
from utils.data.sources.splits import load_split
from utils.processes.suspend import StopRequests, Suspended
from utils.state.checkpoint import load_checkpoint
from utils.state.resume import find_resume_point, resumed_config

# 3 batches and one of a validation, twice. The state is asked for after each of them.
STOPS = (3, 4, 7)  # after the last batch of an epoch, in a validation, in the next epoch


class StopAt(StopRequests):
    """Asks for a stop at the so-manieth time that the run asks."""

    def __init__(self, count=None):
        super().__init__()
        self.count, self.asked = count, 0

    def cause(self):
        self.asked += 1
        return "the test asks" if self.asked == self.count else None


@pytest.fixture(scope="module", autouse=True)
def no_pictures():
    """Drawing takes longer than training these."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("plot_batch", "plot_labels", "plot_results"):
            patch.setattr(outputs, name, lambda *arguments: None)
        patch.setattr(AnchorHead, "plot", lambda *arguments: None)
        yield


@pytest.fixture(scope="module")
def flags(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    return [
        "--data", str(write_small_dataset(folder)), "--cfg", str(write_tiny_model(folder)),
        "--img", "64", "--batch", "4", "--workers", "0", "--device", "cpu", "--epochs", "2",
        "--project", str(folder), "--precise-bn", "2",
    ]  # fmt: skip


@pytest.fixture(scope="module")
def whole(flags):
    """The folder of a run without interruption."""
    start([*flags, "--name", "whole"])
    return folder_of(flags, "whole")


def folder_of(flags, name):
    return TrainConfig(**read_train_flags(flags)[0]).project / name


def start(arguments, stop=None):
    """What `train.main` does with these flags, but for the signals."""
    values, given = read_train_flags(arguments)
    point = find_resume_point(values, given)
    if point is None:
        config = TrainConfig(**values)
        hyp = read_hyperparameters(config.hyp)
    else:
        config, hyp = resumed_config(values, given, point.header)
    train.run(config, hyp, point, stop or StopAt())


@pytest.mark.parametrize("stop", STOPS)
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
