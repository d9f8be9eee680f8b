"""train.py::write_work: what of a run makes its time comparable, as it really was."""

import json

import pytest

from models.detector import Detector
from models.graph import read_model_yaml
from tests.small import write_small_model
from train import Run, build_state, write_work
from utils.config import DEFAULT_HYPERPARAMETERS, parse_train_flags, read_hyperparameters


@pytest.fixture
def record(tmp_path):
    """work.json of a run that ended before its first batch."""

    def record(*flags):
        cfg = write_small_model(tmp_path)
        config = parse_train_flags(["--cfg", str(cfg), *flags])
        hyp = read_hyperparameters(DEFAULT_HYPERPARAMETERS)
        model = Detector(read_model_yaml(cfg, 3))
        model.initialize(seed=0)
        state = build_state(config, hyp, model, batches=3, device="cpu")
        write_work(Run(config, hyp, ("a", "b", "c"), tmp_path), state, 12, 6)
        return json.loads((tmp_path / "work.json").read_text())

    return record


def test_the_kind_of_device_is_part_of_the_work(record):
    assert record()["work"]["device"] == "cpu"
