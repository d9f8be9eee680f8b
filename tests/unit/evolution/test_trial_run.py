"""The command that trains a trial of a search."""

import dataclasses

import pytest

from utils.cli.flags import flags_of
from utils.cli.hyperparameters import read_hyperparameters
from utils.cli.train_config import TrainConfig, read_train_flags
from utils.evolution import trial_run
from utils.evolution.records import TrialRecord
from utils.evolution.trial_run import OWN, TrialRun
from utils.tasks.table import TASKS

COMMON = {field.name: field.default for field in dataclasses.fields(TrainConfig)}


@pytest.fixture
def commands(monkeypatch):
    """The commands of the processes that would have been started."""
    found = []
    monkeypatch.setattr(
        trial_run.subprocess, "Popen", lambda command, **options: found.append(command)
    )
    return found


def as_given(task):
    """Flags that put the common default in place of each one of a task's own."""
    flags = flags_of(TrainConfig)
    pairs = ([flags[name].names[0], str(COMMON[name])] for name in task.defaults)
    return sum(pairs, [])


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
@pytest.mark.parametrize("given", [False, True], ids=["own defaults", "common defaults"])
def test_a_trial_has_the_flags_of_its_search(task, given, commands, tmp_path):
    words = ["--task", task.name, "--epochs", "3", "--evolve", "2"]
    words += as_given(task) if given else []
    config = TrainConfig(**task.completed(*read_train_flags(words)))
    run = TrialRun(tmp_path, TrialRecord(0, {"lr0": 0.5}))
    run.start(config, read_hyperparameters(config.hyp), "torch", "cpu", {})
    trial = TrainConfig(**task.completed(*read_train_flags(commands[0][3:])))
    for name in COMMON.keys() - OWN:
        assert getattr(trial, name) == getattr(config, name), name
    assert read_hyperparameters(trial.hyp).lr0 == 0.5
