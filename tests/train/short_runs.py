"""Runs of two epochs of three batches, for tests that stop one and go on."""

from __future__ import annotations

from pathlib import Path

import train
from tests.small import write_small_dataset, write_tiny_model
from utils.cli.hyperparameters import read_hyperparameters
from utils.cli.train_config import TrainConfig, read_train_flags
from utils.processes.suspend import StopRequests
from utils.state.resume import find_resume_point, resumed_config


class Killed(BaseException):
    """Ends a run as a kill does: nothing catches it, nothing is saved."""


class StopAt(StopRequests):
    """Asks for a stop, or kills, at the so-manieth time that the run asks."""

    def __init__(self, count: int | None = None, kill: bool = False) -> None:
        super().__init__()
        self.count, self.kill, self.asked = count, kill, 0

    def cause(self) -> str | None:
        self.asked += 1
        if self.asked != self.count:
            return None
        if self.kill:
            raise Killed
        return "the test asks"


def short_flags(folder: Path) -> list[str]:
    """Write a dataset and a model; return train.py's flags."""
    return [
        "--data", str(write_small_dataset(folder)), "--cfg", str(write_tiny_model(folder)),
        "--img", "64", "--batch", "4", "--workers", "0", "--device", "cpu", "--epochs", "2",
        "--project", str(folder), "--noplots", "--noautoanchor",
    ]  # fmt: skip


def folder_of(flags: list[str], name: str) -> Path:
    """Return where a run of a name lies."""
    return TrainConfig(**read_train_flags(flags)[0]).project / name


def start(arguments: list[str], stop: StopRequests | None = None) -> Path:
    """Do what `train.main` does with these flags, but for the signals; return the run's folder."""
    values, given = read_train_flags(arguments)
    point = find_resume_point(values, given)
    if point is None:
        config = TrainConfig(**values)
        hyp = read_hyperparameters(config.hyp, config.override)
    else:
        config, hyp = resumed_config(values, given, point.header)
    train.run(config, hyp, point, stop or StopAt())
    return config.project / config.name
