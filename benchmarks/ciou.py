"""Milliseconds of complete IoU, forward and backward: the plain formula and the fused one.

    OMP_NUM_THREADS=2 python -m benchmarks.ciou --backend torch --device cpu

Boxes lie as predictions and their targets do, in cells. Those of several levels are joined into one
call, as the loss does. Both must give the same values and gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from benchmarks.side_by_side import Run, choose_device, finish, keep, new_parser, time_in_turns
from duet.backend import autograd, fused, ops
from duet.backend.contract import Tensor
from duet.utils.processes.command import run_command

TOLERANCE = 1e-4  # of the largest entry; float32 arithmetic in another order makes 1e-6


def draw_boxes(random: np.random.Generator, count: int) -> np.ndarray:
    """Draw boxes, (count, 4) float32 cxcywh: centres around a cell, sides of 0.4 to 20 cells."""
    centre = random.uniform(-0.5, 1.5, (count, 2))
    size = np.exp(random.uniform(-1, 3, (count, 2)))
    return np.concatenate((centre, size), axis=1).astype(np.float32)


def candidates(levels: Sequence[int], device: str) -> dict[str, Run]:
    """Return the ways to compute the CIoU of so many boxes per level, and its gradient."""
    from duet.models.heads.anchor.boxes import complete_iou

    random = np.random.Generator(np.random.Philox(0))
    pairs = [(draw_boxes(random, count), draw_boxes(random, count)) for count in levels]
    joined = [tuple(map(np.concatenate, zip(*pairs, strict=True)))]
    runs = {
        "plain": forward_backward(complete_iou, joined, device),
        "fused": forward_backward(fused.complete_iou, joined, device),
    }
    return runs


def forward_backward(
    box_iou: Callable[[Tensor, Tensor], Tensor],
    pairs: Sequence[tuple[np.ndarray, ...]],
    device: str,
) -> Run:
    """Return a run that gives the CIoU of each pair of arrays, then the gradient by its first."""
    preds = [autograd.variable(pred, device) for pred, _ in pairs]
    targets = [ops.tensor(target, device) for _, target in pairs]

    def run() -> tuple[list[Tensor], list[Tensor]]:
        ious = [box_iou(*pair) for pair in zip(preds, targets, strict=True)]
        total = ops.sum(ious[0])
        for iou in ious[1:]:
            total = total + ops.sum(iou)
        return ious, autograd.gradients(total, preds)

    return run


def require_equal(runs: Mapping[str, Run]) -> None:
    """Raise SystemExit if the candidates find different values or gradients."""
    plain, *others = (
        (name, [np.concatenate([ops.to_numpy(x) for x in tensors]) for tensors in run()])
        for name, run in runs.items()
    )
    for name, found in others:
        for array, wanted in zip(found, plain[1], strict=True):
            if not np.abs(array - wanted).max() <= TOLERANCE * np.abs(wanted).max():
                raise SystemExit(f"{name} finds other numbers: the times compare unequal work")


def main() -> None:
    parser = new_parser("ciou", "Milliseconds of complete IoU and its gradient.", repeats=200)
    parser.add_argument(
        "--levels", nargs="+", default=["100", "3000,3000,3000", "10000"], metavar="N,N",
        help="boxes of each level, one case an argument",
    )  # fmt: skip
    flags = parser.parse_args()
    device = choose_device(flags)
    timings = []
    for case in flags.levels:
        runs = candidates([int(count) for count in case.split(",")], device)
        require_equal(runs)
        timings += time_in_turns(f"{case} boxes", runs, device, flags.repeats)
        keep(flags, timings, device)
    finish(flags, timings, device)


if __name__ == "__main__":
    run_command(main)
