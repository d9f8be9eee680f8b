"""training/outputs.py::write_work: what of a run makes its time comparable, as it really was."""

import json
from types import SimpleNamespace

import pytest

from duet.models.detector import Detector
from duet.models.graph import read_model_yaml
from duet.models.training.outputs import write_work
from duet.models.training.start import build_state
from duet.utils.cli.hyperparameters import DEFAULT_HYPERPARAMETERS, read_hyperparameters
from duet.utils.cli.train_config import parse_train_flags
from duet.utils.state.job import Job, TrainData
from duet.utils.state.run import Run
from tests.small import write_small_model


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
        job = Job(config, hyp, TrainData(("a", "b", "c"), [], []))
        write_work(Run(job, tmp_path), state, {}, {})
        return json.loads((tmp_path / "work.json").read_text())

    return record


@pytest.mark.parametrize("problem", ["", "no compiler"])
def test_the_means_are_those_that_were_chosen_not_those_that_were_asked_for(
    record, monkeypatch, problem
):
    assert record()["means"] == {
        "compiled": False, "box_iou": "plain", "optimizer": "plain", "average": "plain",
    }  # fmt: skip
    compiler = SimpleNamespace(
        compile_problem=lambda device: problem or None, compiled=lambda function, *shapes: function
    )
    monkeypatch.setattr("duet.models.training.execution.autograd", compiler)
    asked = record("--compile", "--bbox_iou_optim", "--multi_tensor_optimizer")
    assert asked["means"] == {
        "compiled": not problem, "box_iou": "fast", "optimizer": "fast", "average": "fast",
    }  # fmt: skip
