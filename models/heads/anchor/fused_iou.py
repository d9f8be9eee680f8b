"""--bbox_iou_optim: the fused complete IoU, used if its value and gradient prove right.

Before: `head.py::AnchorHead.make_loss`, with the device of the training. After: `loss.py`.
"""

from __future__ import annotations

import numpy as np

from backend import autograd, fused, ops
from models.heads.anchor.ciou import BoxIou, complete_iou
from models.proof import is_proved

# Of the largest value. Float32 arithmetic in another order makes 1e-6, in the gradient 1e-5; a
# missing term or a wrong factor at least 1e-2.
CIOU_TOLERANCE = 1e-4
EQUAL_BOXES = 20


def choose_box_iou(device: str) -> BoxIou:
    """Choose the fused CIoU if it is proved, else the plain formula; one line says which."""
    proved = is_proved(
        f"--bbox_iou_optim on {device}",
        fused.implementation(device),
        lambda: probe_box_iou(fused.complete_iou, device),
        lambda: probe_box_iou(complete_iou, device),
        CIOU_TOLERANCE,
    )
    return fused.complete_iou if proved else complete_iou


def probe_box_iou(box_iou: BoxIou, device: str) -> dict[str, np.ndarray]:
    """Return the CIoU of some boxes, the gradient by one of each pair, and where that is finite.

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
        "fraction of finite gradients": np.isfinite(gradient).mean(),
    }


def _probe_boxes() -> tuple[np.ndarray, np.ndarray]:
    """(300, 4) float32 cxcywh twice, in cells: apart, overlapping, nested, the first ones equal."""
    random = np.random.Generator(np.random.Philox(0))
    centre, size = random.uniform(-3, 3, (2, 300, 2)), np.exp(random.uniform(-1, 3, (2, 300, 2)))
    boxes, targets = np.concatenate((centre, size), axis=2).astype(np.float32)
    targets[:EQUAL_BOXES] = boxes[:EQUAL_BOXES]
    return boxes, targets
