"""Some training steps in float64, alone or as one of several ranks; writes what they learnt.

`python -m tests.distributed.training_worker FOLDER` under a launcher, or `learn` in a process.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np

import backend
import train
from backend import nn
from backend.processes import processes
from models.graph import read_model_yaml
from tests.small import write_small_dataset, write_small_model
from utils.config import parse_train_flags, read_hyperparameters
from utils.data.loader import TrainLoader
from utils.data.share import Share
from utils.data.sources import load_dataset
from utils.report import StageTimer

IMAGES, BATCH, EPOCHS = 9, 4, 2  # the last batch of an epoch has one image: a rank has none
CASES = {
    "sync-bn": ["--sync-bn"],
    "own statistics": [],
    "multi-tensor": ["--sync-bn", "--multi_tensor_optimizer", "--optimizer", "AdamW"],
    "frozen": ["--sync-bn", "--freeze", "10"],
}
Arrays = dict[str, np.ndarray]


def learn(folder: Path, case: str) -> Arrays:
    """Weights, averages, optimizer state and losses after some steps.

    In the case "own statistics" BatchNorm uses its running statistics, since what it would
    gather differs from rank to rank.
    """
    from models.detector import Detector

    data, cfg = str(folder / "shapes" / "shapes.yaml"), str(folder / "narrow.yaml")
    flags = ["--data", data, "--cfg", cfg, "--img", "64", "--batch", str(BATCH), "--device", "cpu"]
    config = parse_train_flags([*flags, "--epochs", str(EPOCHS), "--workers", "0", *CASES[case]])
    hyp = read_hyperparameters(config.hyp)
    dataset = load_dataset(config.data)
    samples = train.load_split(dataset, "train")[:IMAGES]
    share = Share(processes().rank, processes().world_size)
    loader = TrainLoader(samples, 64, BATCH, hyp.augmentation(), 0, 0, share=share)
    model = Detector(read_model_yaml(config.cfg, len(dataset.class_names)))
    model.initialize(config.seed)
    state = train.build_state(config, hyp, model, len(loader), "cpu", "float64")
    if case == "own statistics":
        state.model.eval()
    losses = []
    for epoch in range(EPOCHS):
        for batch in loader.epoch(epoch):
            train.train_step(state, batch, StageTimer())
        state.epoch += 1
        losses.append(state.watch.end_epoch())
    state.ema.agree()
    return {
        **{f"model/{name}": array for name, array in nn.state_arrays(state.model).items()},
        **{f"ema/{name}": array for name, array in nn.state_arrays(state.ema.model).items()},
        **{f"optimizer/{name}": x for name, x in state.optimizer.state_arrays().items()},
        "losses": np.array(losses),
    }


def write_inputs(folder: Path) -> None:
    write_small_dataset(folder)
    write_small_model(folder)


def main(folder: Path) -> None:
    backend.use()
    backend.dist.start("cpu", 60.0)
    for case in CASES:
        np.savez(folder / f"{case} {processes().rank}.npz", **learn(folder, case))
    backend.dist.stop()
    os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
