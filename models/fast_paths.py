"""Fast paths are proved on the user's own device before they are used, value and gradient.

Before: the flags of `train.py`. After: what `train.py::build_state` builds with.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

import numpy as np

from backend import autograd, fused, ops
from models.heads.anchor.ciou import complete_iou
from models.heads.anchor.loss import BoxIou

# Results by name, all from the same fixed inputs.
Probe = Callable[[], Mapping[str, np.ndarray]]

# Of the largest value. Float32 arithmetic in another order makes 1e-6, in the gradient 1e-5; a
# missing term or a wrong factor at least 1e-2.
CIOU_TOLERANCE = 1e-4
EQUAL_BOXES = 20

log = logging.getLogger("models")


def choose_box_iou(device: str) -> BoxIou:
    """The fused complete IoU where it is proved, else the plain formula; one line says which."""
    proved = is_proved(
        f"--bbox_iou_optim on {device}",
        fused.implementation(device),
        lambda: probe_box_iou(fused.complete_iou, device),
        lambda: probe_box_iou(complete_iou, device),
        CIOU_TOLERANCE,
    )
    return fused.complete_iou if proved else complete_iou


def is_proved(
    path: str, implementation: str, run_fast: Probe, run_plain: Probe, tolerance: float
) -> bool:
    """Whether a fast path runs and gives the results of the plain one; one log line says so.

    Args:
        path: what was asked for, and where.
        implementation: what would run.
        run_fast, run_plain: compute the same named results from the same inputs.
        tolerance: as for `find_problem`.
    """
    problem = find_problem(run_fast, run_plain, tolerance)
    if problem:
        log.info("%s: the plain path is used (%s: %s)", path, implementation, problem)
    else:
        log.info("%s: %s", path, implementation)
    return not problem


def find_problem(run_fast: Probe, run_plain: Probe, tolerance: float) -> str:
    """Why a fast path cannot stand for the plain one, in words; "" if it can.

    Args:
        tolerance: largest difference of a result, relative to its largest plain value.
    """
    plain = run_plain()
    try:
        return _difference(run_fast(), plain, tolerance)
    except Exception as error:  # compilers, drivers and kernels fail with errors of their own
        return f"{type(error).__name__}: {error}".partition("\n")[0]


def _difference(
    fast: Mapping[str, np.ndarray], plain: Mapping[str, np.ndarray], tolerance: float
) -> str:
    """The first result that differs, in words; "" if none does."""
    for name, wanted in plain.items():
        with np.errstate(invalid="ignore"):
            error = np.abs(fast[name] - wanted).max(initial=0.0)
        allowed = tolerance * np.abs(wanted).max(initial=0.0)
        if not error <= allowed:  # NaN differs too
            return f"its {name} is off by {error:.1e}, at most {allowed:.1e} is accepted"
    return ""


def probe_box_iou(box_iou: BoxIou, device: str) -> dict[str, np.ndarray]:
    """CIoU of some boxes, the gradient by one of each pair, and where that is finite.

    Gradients of equal boxes are compared in that last way only: at a tie of edges there are many.
    """
    boxes, targets = _probe_boxes()
    pred = autograd.variable(boxes, device)
    iou = box_iou(pred, ops.tensor(targets, device))
    weights = np.linspace(0.5, 1.5, len(boxes), dtype=np.float32)
    total = ops.sum(iou * ops.tensor(weights, device))
    gradient = ops.to_numpy(autograd.gradients(total, [pred])[0])
    return {
        "CIoU": ops.to_numpy(iou),
        "gradient": gradient[EQUAL_BOXES:],
        "share of finite gradients": np.isfinite(gradient).mean(),
    }


def _probe_boxes() -> tuple[np.ndarray, np.ndarray]:
    """(300, 4) float32 cxcywh twice, in cells: apart, overlapping, nested, the first ones equal."""
    random = np.random.Generator(np.random.Philox(0))
    centre, size = random.uniform(-3, 3, (2, 300, 2)), np.exp(random.uniform(-1, 3, (2, 300, 2)))
    boxes, targets = np.concatenate((centre, size), axis=2).astype(np.float32)
    targets[:EQUAL_BOXES] = boxes[:EQUAL_BOXES]
    return boxes, targets
