"""Milliseconds of a model's forward pass, with BatchNorm as it was trained and folded away.

    OMP_NUM_THREADS=2 python -m benchmarks.folding --weights yolov5n.pt --img 640 --device cpu

Both get the same images, in turns, and must give the same raw maps to rounding. They compute
without TF32, which rounds more. Without --weights the model is untrained, which takes as long.
"""

from __future__ import annotations

from utils.processes.start import start_command

if __name__ == "__main__":
    start_command()  # before what may be slow to import, or missing

import argparse
from typing import Any

import numpy as np

import backend
from backend import autograd, nn
from benchmarks.side_by_side import (
    choose_device,
    finish,
    new_parser,
    require_equal_tensors,
    time_in_turns,
)
from utils.cli.flags import from_one
from utils.processes.command import run_command
from utils.weights.load import load_weights

TOLERANCE = 1e-4  # relative to the largest logit; float32 sums of a network in another order


def build_model(flags: argparse.Namespace, device: str, fold: bool) -> Any:
    from models.detector import Detector
    from models.graph import read_model_yaml
    from models.inference.folding import fold_batch_norm
    from models.inference.predictor import load_detector

    if flags.weights:
        return load_detector(load_weights(flags.weights), device, fold)
    model = Detector(read_model_yaml(flags.cfg))
    model.initialize(seed=0)
    if fold:
        fold_batch_norm(model)
    return nn.frozen_copy(nn.place(model, device, "float32"))


def main() -> None:
    parser = new_parser("folding", "Milliseconds of a forward pass.", repeats=20)
    add = parser.add_argument
    add("--weights", default="", metavar="F", help="default: untrained weights of --cfg")
    add("--cfg", default="models/yolov5n.yaml", metavar="F")
    add("--img", type=from_one, default=640, metavar="PX")
    add("--batch", type=from_one, default=1, metavar="N")
    flags = parser.parse_args()
    device = choose_device(flags)
    backend.device.compute_exactly(device)
    from models.detector import images_to_tensor

    random = np.random.Generator(np.random.Philox(0))
    shape = flags.batch, 3, flags.img, flags.img
    images = images_to_tensor(random.integers(0, 256, shape, dtype=np.uint8), device)
    plain, folded = (build_model(flags, device, fold) for fold in (False, True))
    with autograd.no_grad():
        require_equal_tensors("maps", plain(images), folded(images), TOLERANCE)
        both = {"plain": lambda: plain(images), "folded": lambda: folded(images)}
        case = f"{flags.batch} x {flags.img} px"
        timings = time_in_turns(case, both, device, flags.repeats)
    finish(flags, timings, device)


if __name__ == "__main__":
    run_command(main)
