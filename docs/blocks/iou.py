# Runs on torch and oneflow.
# Numbers agree to 1e-2.
# --8<-- [start:family]
import numpy as np

from duet import backend

backend.use()

from duet.backend import autograd, ops
from duet.models.heads.anchor.boxes import complete_iou


def family(pred, target):
    """IoU, GIoU and DIoU of boxes (N, 4) cxcywh, paired row by row."""
    low, high = pred[:, :2] - pred[:, 2:] / 2, pred[:, :2] + pred[:, 2:] / 2
    target_low = target[:, :2] - target[:, 2:] / 2
    target_high = target[:, :2] + target[:, 2:] / 2
    overlap = ops.minimum(high, target_high) - ops.maximum(low, target_low)
    overlap = ops.clamp(overlap, low=0.0)
    shared = overlap[:, 0] * overlap[:, 1]
    union = pred[:, 2] * pred[:, 3] + target[:, 2] * target[:, 3] - shared
    sides = ops.maximum(high, target_high) - ops.minimum(low, target_low)
    hull = sides[:, 0] * sides[:, 1]
    apart = (pred - target) ** 2
    iou = shared / union
    giou = iou - (hull - union) / hull
    diou = iou - (apart[:, 0] + apart[:, 1]) / (
        sides[:, 0] ** 2 + sides[:, 1] ** 2
    )
    return iou, giou, diou


def tensor(box):
    return ops.tensor(np.array([box], np.float32))


def value(measure):
    return float(ops.to_numpy(measure)[0])


target = tensor([38, 52, 48, 48])  # centre x, y, width, height
predicted = {
    "inside": [48, 62, 24, 24],
    "side by side": [62, 52, 48, 48],
    "apart": [78, 92, 20, 20],
    "other shape": [50, 52, 72, 32],
}
print("                 IoU    GIoU    DIoU    CIoU")
for name, box in predicted.items():
    pred = tensor(box)
    measures = *family(pred, target), complete_iou(pred, target)
    print(f"{name:12}", *(f"{value(measure):7.3f}" for measure in measures))


# --8<-- [end:family]
# --8<-- [start:descent]
def gradient(measure, box, target):
    """Gradient of 1 - measure by the predicted box."""
    pred = autograd.variable(np.array([box], np.float32))
    (found,) = autograd.gradients(ops.sum(1 - measure(pred, target)), [pred])
    return ops.to_numpy(found)[0]


STEPS, RATE = 200, 0.25
tall = tensor([5.4, 4.2, 1.6, 2.4])
measures = {
    "IoU": lambda pred, target: family(pred, target)[0],
    "GIoU": lambda pred, target: family(pred, target)[1],
    "DIoU": lambda pred, target: family(pred, target)[2],
    "CIoU": complete_iou,
}
print(f"IoU after 0, {STEPS // 2} and {STEPS} steps")
for name, measure in measures.items():
    box = np.array([2.4, 2.2, 2.4, 0.9], np.float32)
    found = []
    for step in range(STEPS + 1):
        if step % (STEPS // 2) == 0:
            found.append(value(family(tensor(box), tall)[0]))
        box = box - np.float32(RATE * (1 - step / STEPS)) * gradient(
            measure, box, tall
        )
    print(f"{name:5}", *(f"{iou:6.2f}" for iou in found))
# --8<-- [end:descent]
