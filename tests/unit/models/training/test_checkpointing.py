"""`checkpointing.py`: what is captured has a kind each; what changes in other processes."""

import dataclasses
import json
from types import SimpleNamespace

import pytest

from duet import backend
from duet.models.detector import Detector
from duet.models.graph import read_model_yaml
from duet.models.training.checkpointing import capture, differences, restore
from duet.models.training.start import build_state
from duet.utils.cli.hyperparameters import DEFAULT_HYPERPARAMETERS, read_hyperparameters
from duet.utils.cli.train_config import parse_train_flags
from duet.utils.errors import UserError
from duet.utils.state.job import Job, TrainData
from duet.utils.state.progress import PROGRESS, read_progress
from duet.utils.state.run import Run
from tests.small import write_tiny_model


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
    return Run(Job(config, hyp, TrainData(tuple("abcde"), [], [])), tmp_path)


def test_captured_progress_matches_its_schema(run, state):
    progress = capture(run, state).header.progress
    assert progress.keys() == PROGRESS.keys()
    assert read_progress(json.loads(json.dumps(progress))) == progress


def test_state_with_other_losses_is_refused_by_name(run, state):
    checkpoint = capture(run, state)
    header = checkpoint.header
    progress = {**header.progress, "loss_names": ["mask", "box"]}
    other = dataclasses.replace(header, progress=progress)
    with pytest.raises(UserError, match="not match the model: the state has the losses mask, box"):
        restore(run, state, dataclasses.replace(checkpoint, header=other))


@pytest.mark.parametrize(
    ("before", "flags", "reported"),
    [
        (1, [], []),
        (2, [], ["2 processes before, 1 now: without --sync-bn BatchNorm differs"]),
        (2, ["--sync-bn"], ["2 processes before, 1 now: sums round differently"]),
    ],
)
def test_resuming_with_other_world_size_reports_changes(before, flags, reported):
    header = SimpleNamespace(backend=backend.use(), progress={"world_size": before})
    assert list(differences(header, parse_train_flags(flags).sync_bn)) == reported
