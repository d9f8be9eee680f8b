"""The two heads on one backbone: a step, its loss, detection, its decoding and NMS.

    python -m benchmarks.heads --device cpu

The public anchor-free head computes more: at size n the whole model has 1.7 times the operations of
the one with anchors, at x 1.2 times. So the loss is timed alone too: values and gradients of maps
that do not change. Decoded is a tenth of the cells of drawn maps, as with trained weights; NMS
takes equally many rows of both.
"""

import argparse
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from benchmarks.side_by_side import (
    Run,
    Timing,
    choose_device,
    finish,
    new_parser,
    time_in_turns,
)
from benchmarks.train_step import Candidate, draw_batch, start
from duet.backend import autograd, nn, ops
from duet.backend.checks import CPU
from duet.utils.cli.flags import from_one
from duet.utils.data.image.letterbox import Letterbox
from duet.utils.geometry.detections import SuppressionSettings
from duet.utils.memory import keep_freed_memory
from duet.utils.processes.command import run_command

ENDS = {"with anchors": "", "anchor-free": "u"}  # of the names of the models
FAST = Candidate(("--bbox_iou_optim", "--multi_tensor_optimizer"), 0.0)
SETTINGS = SuppressionSettings()
ABOVE = 0.1  # of the rows are decoded
ROWS = 600  # of an image, for NMS


def settings_of(head: Any, maps: Any) -> SuppressionSettings:
    """Return settings with the confidence above which a tenth of the rows of drawn maps are."""

    def number_above(threshold: float) -> int:
        return sum(map(len, head.decode_above(maps, settings(threshold))))

    settings = partial(SuppressionSettings, max_detections=10**6)  # decodes every row
    number, low, high = number_above(0.0), 0.0, 1.0
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (middle, high) if number_above(middle) > ABOVE * number else (low, middle)
    return settings(high)


def runs_of(state: Any, batch: Any, device: str) -> Mapping[str, Run]:
    """Return what is timed of a model, by its name."""
    from duet.models.detector import images_to_tensor
    from duet.models.stored import fold_batch_norm
    from duet.models.training.step import train_step
    from duet.models.training.step_watch import StageTimer

    head, num_images = state.model.head, len(batch.images)
    detector = nn.frozen_copy(state.model)
    fold_batch_norm(detector)  # makes its biases on the CPU
    nn.place(detector, device, "float32")
    with autograd.no_grad():
        images = images_to_tensor(batch.images, device)
        shapes = [x.shape for x in detector(images)]
    random = np.random.Generator(np.random.Philox(0))
    arrays = [random.normal(size=shape).astype(np.float32) for shape in shapes]
    raw = [autograd.variable(array, device) for array in arrays]
    maps = [ops.tensor(array, device) for array in arrays]
    above = settings_of(head, maps)
    rows = [image[:ROWS] for image in head.decode_above(maps, above)]
    side = batch.images.shape[2:]
    places = [Letterbox(side, side, (0, 0), side)] * num_images

    def loss() -> None:
        autograd.gradients(state.loss(raw, batch.targets).total, raw)

    def detect() -> None:
        with autograd.no_grad():
            found = head.decode_above(detector(images), SETTINGS)
        head.finish_images(found, places, SETTINGS)

    return {
        "step": partial(train_step, state, batch, StageTimer(device)),
        "loss": loss,
        "detection": detect,
        "decoding": lambda: head.decode_above(maps, above),
        "NMS": lambda: head.finish_images(rows, places, SETTINGS),
    }


def measure(flags: argparse.Namespace, device: str) -> list[Timing]:
    """Time both heads in turns, each part after the other."""
    batch, runs = draw_batch(flags.batch, flags.img, num_classes=80), {}
    for name, end in ENDS.items():
        flags.cfg = f"models/yolov5{flags.size}{end}.yaml"
        runs[name] = runs_of(start("step", FAST, flags, device), batch, device)
    case = f"{flags.size}, {flags.batch} x {flags.img} px"
    timings = []
    for part in next(iter(runs.values())):
        both = {name: runs[name][part] for name in runs}
        timings += time_in_turns(f"{part}, {case}", both, device, flags.repeats)
    return timings


def main() -> None:
    parser = new_parser("heads", "Two heads on one backbone.", repeats=10)
    parser.add_argument("--size", choices="nsmlx", default="n", help="of the models")
    parser.add_argument("--img", type=from_one, default=320, help="side of the images, pixels")
    parser.add_argument("--batch", type=from_one, default=16, help="images per step")
    flags = parser.parse_args()
    device = choose_device(flags)
    if device == CPU:
        keep_freed_memory()
    finish(flags, measure(flags, device), device)


if __name__ == "__main__":
    run_command(main)
