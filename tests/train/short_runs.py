"""Runs of two epochs of three batches, for tests that stop one and go on; equal results."""

import csv
import dataclasses
import json
from collections.abc import Callable, Collection
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np

import train
from duet.models.detector import Detector
from duet.models.graph import read_model_yaml
from duet.models.heads.base import LossTerms
from duet.models.training.start import build_state
from duet.models.training.step import TrainState
from duet.utils.cli.hyperparameters import DEFAULT_HYPERPARAMETERS, read_hyperparameters
from duet.utils.cli.task_flags import complete_flags
from duet.utils.cli.train_config import TrainConfig, parse_train_flags, read_train_flags
from duet.utils.data.loading.batch import Batch
from duet.utils.data.loading.batches import TrainRecipe
from duet.utils.data.loading.loader import TrainLoader
from duet.utils.data.sources.dataset import load_dataset
from duet.utils.data.sources.splits import load_split
from duet.utils.processes.suspend import StopRequests
from duet.utils.state.resume import find_resume_point, resumed_config
from duet.utils.weights.checkpoint import Header, load_checkpoint
from tests.small import write_small_dataset, write_tiny_model


class Killed(BaseException):
    """Ends a run as a kill does: nothing catches it, nothing is saved."""


class StopAt(StopRequests):
    """Asks for a stop, or kills, the count-th time that the run asks."""

    def __init__(self, count: int | None = None, kill: bool = False) -> None:
        super().__init__()
        self.count, self.kill, self.asked = count, kill, 0

    def cause(self, agreed: bool | None = None) -> str | None:
        self.asked += 1
        if self.asked != self.count:
            return None
        if self.kill:
            raise Killed
        return "the test asks"


def short_flags(
    folder: Path, *more: object, data: Path | None = None, cfg: Path | None = None
) -> list[str]:
    """Return train.py's flags, with more of them; write a dataset and a model if not given."""
    words = (
        "--data", data or write_small_dataset(folder), "--cfg", cfg or write_tiny_model(folder),
        "--img", 64, "--batch", 4, "--workers", 0, "--device", "cpu", "--epochs", 2,
        "--project", folder, "--noplots", *more,
    )  # fmt: skip
    return list(map(str, words))


def folder_of(flags: list[str], name: str) -> Path:
    """Return where a run of a name lies."""
    return TrainConfig(**read_train_flags(flags)[0]).project / name


def start(arguments: list[str], stop: StopRequests | None = None) -> Path:
    """Do what `train.main` does with these flags, but for the signals; return the run's folder."""
    values, given = read_train_flags(arguments)
    point = find_resume_point(values, given)
    if point is None:
        config = complete_flags(values, given)
        hyp = read_hyperparameters(config.hyp, config.override)
    else:
        config, hyp = resumed_config(values, given, point.header)
    train.run(config, hyp, point, stop or StopAt())
    return config.project / config.name


def small_training(
    folder: Path, batch_size: int, write_model: Callable[[Path], Path] = write_tiny_model
) -> tuple[Callable[..., TrainState], list[Batch]]:
    """Return a function from flags to the state of a new training, and the batches of an epoch.

    With `each`, every batch is an update, at full rates.
    """
    data, own = write_small_dataset(folder), write_model(folder)
    dataset = load_dataset(data)
    loader = TrainLoader(load_split(dataset, "train"), TrainRecipe(64, batch_size))

    def start(*flags: str, cfg: Path = own, each: bool = False, **changes: Any) -> TrainState:
        words = ["--cfg", str(cfg), "--batch", str(batch_size), *flags]
        hyp = read_hyperparameters(DEFAULT_HYPERPARAMETERS)
        hyp = dataclasses.replace(hyp, warmup_epochs=0) if each else hyp
        model = Detector(read_model_yaml(cfg, len(dataset.class_names)))
        model.initialize(seed=0)
        config = parse_train_flags(words)
        state = build_state(config, hyp, model, batches=len(loader), device="cpu", **changes)
        if each:
            state.schedule = dataclasses.replace(state.schedule, batch_size=64)
        return state

    return start, list(loader.epoch(0))


def losing(state: TrainState, lost: Collection[int]) -> TrainState:
    """Have the batches of these numbers lose their update: their losses are infinite."""
    plain = state.step_loss

    def loss(raw: Any, targets: Any, whole: Any) -> LossTerms:
        terms = plain(raw, targets, whole)
        if state.batch_number not in lost:
            return terms
        infinite = {name: x * float("inf") for name, x in terms.by_name.items()}
        return LossTerms(infinite, terms.total * float("inf"))

    state.step_loss = loss
    return state


SECTIONS = ("model", "ema", "optimizer")


def assert_equal_runs(folder: Path, reference: Path) -> None:
    """States, results.csv and work.json; OneFlow too repeats itself on one CPU thread."""
    for name in ("last", "best"):
        found, expected = (
            load_checkpoint(run / "weights" / f"{name}.safetensors") for run in (folder, reference)
        )
        for section in SECTIONS:
            left, right = getattr(found, section), getattr(expected, section)
            assert left.keys() == right.keys()
            for key, array in left.items():
                np.testing.assert_array_equal(array, right[key], f"{name}: {section} {key}")
        assert timeless(found.header) == timeless(expected.header)
    assert rows(folder) == rows(reference)
    works = [json.loads((run / "work.json").read_text()) for run in (folder, reference)]
    for work in works:
        del work["work"]["settings"]
    assert works[0] == works[1]


def timeless(header: Header) -> dict[str, Any]:
    """A header without seconds and without where the run lies."""
    document = dataclasses.asdict(header)
    del document["progress"]["seconds"], document["settings"]
    kept = [not name.startswith("seconds/") for name in document["progress"]["columns"]]
    cells = document["progress"]["results"]
    document["progress"]["results"] = [list(compress(row, kept)) for row in cells]
    return document


def rows(folder: Path) -> list[dict[str, str]]:
    """Those of results.csv without seconds."""
    with open(folder / "results.csv", newline="", encoding="utf-8") as file:
        return [
            {name: value for name, value in row.items() if not name.startswith("seconds/")}
            for row in csv.DictReader(file)
        ]
