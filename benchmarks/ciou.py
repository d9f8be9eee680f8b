"""Milliseconds of complete IoU, forward and backward: the plain formula and the fused one.

    OMP_NUM_THREADS=2 python -m benchmarks.ciou --backend torch --device cpu

Boxes lie as predictions and their targets do, in cells. Both must give the same values and
gradients.
"""

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from benchmarks.side_by_side import choose_device, finish, keep, new_parser, time_in_turns
from duet.backend import autograd, fused, ops
from duet.backend.contract import Tensor
from duet.utils.cli.flags import from_one
from duet.utils.processes.command import run_command

TOLERANCE = 1e-4  # of the largest entry; float32 arithmetic in another order makes 1e-6


def draw_boxes(random: np.random.Generator, count: int) -> np.ndarray:
    """Draw boxes, (count, 4) float32 cxcywh: centres around a cell, sides of 0.4 to 20 cells."""
    centre = random.uniform(-0.5, 1.5, (count, 2))
    size = np.exp(random.uniform(-1, 3, (count, 2)))
    return np.concatenate((centre, size), axis=1).astype(np.float32)


def candidates(number: int, device: str) -> dict[str, Callable[[], list[Tensor]]]:
    """Return the ways to compute the CIoU of this many boxes, and its gradient."""
    from duet.models.heads.anchor.boxes import complete_iou

    random = np.random.Generator(np.random.Philox(0))
    pred = autograd.variable(draw_boxes(random, number), device)
    target = ops.tensor(draw_boxes(random, number), device)

    def run(box_iou: Callable[[Tensor, Tensor], Tensor]) -> list[Tensor]:
        iou = box_iou(pred, target)
        return [iou, *autograd.gradients(ops.sum(iou), [pred])]

    return {"plain": partial(run, complete_iou), "fused": partial(run, fused.complete_iou)}


def require_equal(runs: Mapping[str, Callable[[], list[Tensor]]]) -> None:
    """Raise SystemExit if the candidates find different values or gradients."""
    plain, fast = ([ops.to_numpy(tensor) for tensor in run()] for run in runs.values())
    for array, wanted in zip(fast, plain, strict=True):
        if not np.abs(array - wanted).max() <= TOLERANCE * np.abs(wanted).max():
            raise SystemExit("fused finds other numbers: the times compare unequal work")


def main() -> None:
    parser = new_parser("ciou", "Milliseconds of complete IoU and its gradient.", repeats=200)
    parser.add_argument("--boxes", type=from_one, nargs="+", default=[100, 9000, 10000])
    flags = parser.parse_args()
    device = choose_device(flags)
    timings = []
    for number in flags.boxes:
        runs = candidates(number, device)
        require_equal(runs)
        timings += time_in_turns(f"{number} boxes", runs, device, flags.repeats)
        keep(flags, timings, device)
    finish(flags, timings, device)


if __name__ == "__main__":
    run_command(main)
