"""models/training/parallel.py: --half-gradients where there is one process."""

import logging

import pytest

from backend import device, nn
from models.training.parallel import parallelize
from utils.cli.train_config import parse_train_flags
from utils.errors import UserError


def test_half_gradients_of_one_process_are_named_or_refused(caplog, monkeypatch):
    caplog.set_level(logging.INFO, "train")
    config, norm = parse_train_flags(["--half-gradients"]), nn.BatchNorm2d(2)
    if not device.supports("half_gradients"):
        with pytest.raises(UserError, match="cannot send bfloat16 gradients; leave it out"):
            parallelize(config, norm)
        return
    parallelize(parse_train_flags([]), norm)
    assert caplog.messages == []
    parallelize(config, norm)
    assert caplog.messages == ["--half-gradients has no effect: one process sends no gradients"]
    monkeypatch.setattr("models.training.parallel.dist.data_parallel", lambda *given: given)
    for name, value in {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 2}.items():
        monkeypatch.setenv(name, str(value))
    assert parallelize(config, norm) == (norm, True)
    assert len(caplog.messages) == 1
