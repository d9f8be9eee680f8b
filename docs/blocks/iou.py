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


square = [38, 52, 48, 48]  # centre x, y, width, height
pairs = {
    "inside": ([48, 62, 24, 24], square),
    "side by side": ([62, 52, 48, 48], square),
    "apart": ([78, 92, 20, 20], square),
    "other shape": ([52, 52, 88, 24], [52, 52, 24, 88]),
}
print("                 IoU    GIoU    DIoU    CIoU")
for name, (box, target) in pairs.items():
    pair = tensor(box), tensor(target)
    measures = *family(*pair), complete_iou(*pair)
    print(f"{name:12}", *(f"{value(measure):7.3f}" for measure in measures))


# --8<-- [end:family]
# --8<-- [start:descent]
def gradient(measure, boxes, targets):
    """Gradients (N, 4) of 1 - measure by the predicted boxes."""
    pred = autograd.variable(boxes)
    (found,) = autograd.gradients(ops.sum(1 - measure(pred, targets)), [pred])
    return ops.to_numpy(found)


def cases(places):
    """Boxes and targets (N, 4) cxcywh: 7 x 7 x 7 shapes at each place."""
    angle, radius = np.random.default_rng(0).uniform(size=(2, places))
    angle, radius = 2 * np.pi * angle, 3 * np.sqrt(radius)
    x, y = radius * np.cos(angle), radius * np.sin(angle)
    ratios = np.array([1 / 4, 1 / 3, 1 / 2, 1, 2, 3, 4])
    areas = np.array([0.5, 0.67, 0.75, 1, 1.33, 1.5, 2])
    t, r, a, place = np.ix_(ratios, ratios, areas, np.arange(places))
    boxes = x[place], y[place], np.sqrt(a * r), np.sqrt(a / r)
    targets = 0.0, 0.0, np.sqrt(t), 1 / np.sqrt(t)  # of area 1, at the origin
    shape = np.broadcast_shapes(*(side.shape for side in (t, *boxes)))
    return [
        np.stack([np.broadcast_to(v, shape).ravel() for v in row], axis=1)
        for row in (boxes, targets)
    ]


STEPS, RATE = 200, 0.1
measures = {
    "IoU": lambda pred, target: family(pred, target)[0],
    "GIoU": lambda pred, target: family(pred, target)[1],
    "DIoU": lambda pred, target: family(pred, target)[2],
    "CIoU": complete_iou,
}
start, target = (boxes.astype(np.float32) for boxes in cases(places=20))
targets = ops.tensor(target)
curves = {}
print(f"mean error of {len(start)} boxes after step")
print("      ", *(f"{step:6}" for step in range(0, STEPS + 1, 50)))
for name, measure in measures.items():
    boxes, errors = start, curves.setdefault(name, [])
    for step in range(STEPS + 1):
        errors.append(np.abs(boxes - target).sum(axis=1).mean())
        fit = ops.to_numpy(family(ops.tensor(boxes), targets)[0])
        rate = RATE * (1 if step < 160 else 0.1) * (2 - fit[:, None])
        boxes = boxes - rate * gradient(measure, boxes, targets)
        boxes[:, 2:] = np.maximum(boxes[:, 2:], 1e-3)
    print(f"{name:6}", *(f"{error:6.2f}" for error in errors[::50]))
# --8<-- [end:descent]
