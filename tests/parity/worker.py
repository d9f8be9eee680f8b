"""One backend's side of a comparison: train a few steps and write what happened.

`python -m tests.parity.worker SIZE BATCH CASES` under YOLO_BACKEND. CASES is a JSON list of lists
(OUT, DATA, MODEL, HYP, DTYPE, STEPS).
"""

# ruff: noqa: E402
from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from duet import backend

backend.use()  # before the models, whose classes derive from the framework's

from duet.backend import nn
from duet.models.detector import Detector
from duet.models.graph import read_model_yaml
from duet.models.training.start import build_state
from duet.models.training.step import train_step
from duet.models.training.step_watch import StageTimer
from duet.utils.cli.hyperparameters import read_hyperparameters
from duet.utils.cli.train_config import parse_train_flags
from duet.utils.data.loading.batches import TrainRecipe
from duet.utils.data.loading.loader import TrainLoader
from duet.utils.data.sources.dataset import load_dataset
from duet.utils.data.sources.splits import load_split
from tests.losses import arrays_of


def train(
    size: str, batch_size: str, out: str, data: str, cfg: str, hyp_path: str, dtype: str, steps: int
) -> None:
    config = parse_train_flags(["--cfg", cfg, "--img", size, "--batch", batch_size])
    hyp = read_hyperparameters(hyp_path)
    dataset = load_dataset(data)
    samples = load_split(dataset, "train")
    model = Detector(read_model_yaml(cfg, len(dataset.class_names)))
    model.initialize(seed=0)
    augment, items = hyp.augmentation(), model.head.task.items.load()
    losses: list[list[float]] = []
    recipe = TrainRecipe(config.image_size, config.batch_size, augment, config.seed, items=items)
    with TrainLoader(samples, recipe) as loader:
        state = build_state(config, hyp, model, len(loader), "cpu", dtype)
        while len(losses) < steps:
            for batch in loader.epoch(state.epoch):
                terms = train_step(state, batch, StageTimer())
                losses.append([float(array) for array in arrays_of(terms).values()])
            state.epoch += 1
    arrays = {f"ema/{name}": array for name, array in nn.state_arrays(state.ema.model).items()}
    np.savez(Path(out), losses=np.array(losses[:steps]), **arrays)


if __name__ == "__main__":
    for case in json.loads(sys.argv[3]):
        train(*sys.argv[1:3], *case)
