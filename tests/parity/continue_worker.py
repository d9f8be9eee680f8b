"""One backend's side of a continued training: the step after a checkpoint, for each optimizer.

`python -m tests.parity.continue_worker FOLDER DATA MODEL STEPS` under YOLO_BACKEND. With STEPS
above 0 it trains so many steps from the start and writes FOLDER/OPTIMIZER.safetensors, else it
reads that; either way FOLDER/OPTIMIZER-BACKEND.npz has everything after one more step, in float64.
"""

# ruff: noqa: E402
from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import numpy as np

import backend

backend.use()  # before the models, whose classes derive from the framework's

from backend import nn
from models.detector import Detector
from models.graph import read_model_yaml
from models.training.state import TrainState, build_state
from models.training.step import train_step
from tests.losses import arrays_of
from tests.parity.side import slowed
from utils.cli.hyperparameters import DEFAULT_HYPERPARAMETERS, read_hyperparameters
from utils.cli.recipe_config import OPTIMIZERS
from utils.cli.train_config import parse_train_flags
from utils.data.augment.strengths import AugmentConfig
from utils.data.loading.batch import Batch
from utils.data.loading.loader import TrainLoader
from utils.data.sources.dataset import load_dataset
from utils.data.sources.splits import load_split
from utils.report.stage_timer import StageTimer
from utils.state.checkpoint import Checkpoint, Header, load_checkpoint, save_checkpoint

IMAGE_SIZE, BATCH_SIZE = 64, 2


def main(folder: str, data: str, cfg: str, steps: str) -> None:
    name = backend.use()
    batches = read_batches(data)
    for optimizer in OPTIMIZERS:
        state, checkpoint = new_state(cfg, optimizer), Path(folder, f"{optimizer}.safetensors")
        if int(steps):
            for batch in batches[: int(steps)]:
                train_step(state, batch, StageTimer())
            save(checkpoint, state)
        else:
            restore(checkpoint, state)
        np.savez(Path(folder, f"{optimizer}-{name}.npz"), **after_one_more(state, batches))


def after_one_more(state: TrainState, batches: list[Batch]) -> dict[str, np.ndarray]:
    """Loss, weights, average and optimizer's state after the next batch."""
    terms = train_step(state, batches[state.batch_number], StageTimer())
    sections = {
        "model": nn.state_arrays(state.model),
        "ema": nn.state_arrays(state.ema.model),
        "optimizer": state.optimizer.state_arrays(),
        "loss": arrays_of(terms),
    }
    return {f"{key}/{name}": x for key, found in sections.items() for name, x in found.items()}


def read_batches(data: str) -> list[Batch]:
    samples = load_split(load_dataset(data), "train")
    loader = TrainLoader(samples, IMAGE_SIZE, BATCH_SIZE, AugmentConfig(), seed=0, workers=0)
    return list(loader.epoch(0))


def new_state(cfg: str, optimizer: str) -> TrainState:
    """An update after every batch, without warm-up, at rates that do not double differences."""
    flags = ["--cfg", cfg, "--img", str(IMAGE_SIZE), "--batch", str(BATCH_SIZE)]
    config = parse_train_flags([*flags, "--optimizer", optimizer])
    hyp = slowed(read_hyperparameters(DEFAULT_HYPERPARAMETERS), optimizer)
    model = Detector(read_model_yaml(cfg, 5))
    model.initialize(seed=0)
    state = build_state(config, hyp, model, batches=6, device="cpu", dtype="float64")
    schedule = dataclasses.replace(state.schedule, hyp=dataclasses.replace(hyp, warmup_epochs=0))
    state.schedule = dataclasses.replace(schedule, batch_size=64)
    return state


def save(path: Path, state: TrainState) -> None:
    header = Header(
        model=state.model.spec.document,
        class_names=(),
        epoch=state.epoch,
        batch_number=state.batch_number,
        last_update=state.last_update,
        ema_updates=state.ema.updates,
        best_fitness=state.best_fitness,
        hyperparameters={},
        settings={},
        backend=backend.use(),
    )
    sections = (nn.state_arrays(state.model), nn.state_arrays(state.ema.model))
    save_checkpoint(path, Checkpoint(header, *sections, state.optimizer.state_arrays()))


def restore(path: Path, state: TrainState) -> None:
    checkpoint = load_checkpoint(path)
    nn.load_state_arrays(state.model, checkpoint.model)
    nn.load_state_arrays(state.ema.model, checkpoint.ema)
    state.optimizer.load_state_arrays(checkpoint.optimizer)
    state.ema.updates = checkpoint.header.ema_updates
    state.batch_number = checkpoint.header.batch_number
    state.last_update = checkpoint.header.last_update


if __name__ == "__main__":
    main(*sys.argv[1:])
