# Runs on torch and oneflow.
# Needs shapes, best.safetensors.
# Shows lines with suspended, states, the same.
# --8<-- [start:page]
import logging

import numpy as np

import train
from duet.utils.cli.hyperparameters import read_hyperparameters
from duet.utils.cli.train_config import TrainConfig, read_train_flags
from duet.utils.processes.suspend import StopRequests, Suspended
from duet.utils.state.resume import find_resume_point, resumed_config
from duet.utils.weights.checkpoint import load_checkpoint

FLAGS = "--data shapes/shapes.yaml --weights best.safetensors --img 64 --batch 4 --epochs 1"
FLAGS += " --workers 0 --noplots --device cpu --name"


def run(flags, minutes=None):
    """Do what train.py does with these flags."""
    values, given = read_train_flags(flags.split())
    point = find_resume_point(values, given)
    if point is None:
        config = TrainConfig(**values)
        hyp = read_hyperparameters(config.hyp, config.override)
    else:
        config, hyp = resumed_config(values, given, point.header)
    train.run(config, hyp, point, StopRequests(minutes=minutes))
    return load_checkpoint(config.project / config.name / "weights" / "last.safetensors")


logging.disable()
whole = run(f"{FLAGS} whole")
try:
    run(f"{FLAGS} parts", minutes=0)  # --time-limit 0
except Suspended as message:
    print(str(message).partition(";")[0])
parts = run("--resume runs/train/parts")
for part in ("model", "ema", "optimizer"):
    one, other = getattr(whole, part), getattr(parts, part)
    equal = all(np.array_equal(one[name], other[name]) for name in one)
    print(f"{part}: {len(one)} arrays,", "the same bits" if equal else "not the same")
# --8<-- [end:page]
