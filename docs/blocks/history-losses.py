# --8<-- [start:page]
# Runs on torch and oneflow.
# Numbers agree to 1e-3.
import numpy as np

from duet import backend

backend.use()

from duet.backend import ops
from duet.models.heads.anchor.boxes import complete_iou


def losses(box, target):
    """Losses (N,) by name of boxes (N, 4) cxcywh, paired row by row."""
    low, high = box[:, :2] - box[:, 2:] / 2, box[:, :2] + box[:, 2:] / 2
    other = target[:, :2] - target[:, 2:] / 2
    end = target[:, :2] + target[:, 2:] / 2
    common = np.minimum(high, end) - np.maximum(low, other)
    shared = np.clip(common, 0, None).prod(axis=1)
    (w, h), (tw, th) = box[:, 2:].T, target[:, 2:].T
    iou = shared / (w * h + tw * th - shared)
    cw, ch = (np.maximum(high, end) - np.minimum(low, other)).T  # the hull
    dx, dy = (target - box)[:, :2].T  # the way between the centres
    far = (dx**2 + dy**2) / (cw**2 + ch**2)
    v = 4 / np.pi**2 * (np.arctan(tw / th) - np.arctan(w / h)) ** 2
    alpha = v / (1 - iou + v + 1e-9)
    sides = (w - tw) ** 2 / cw**2 + (h - th) ** 2 / ch**2
    # SIoU: the angle of the way lets the nearer axis come first.
    sine = np.minimum(abs(dx), abs(dy)) / (np.hypot(dx, dy) + 1e-9)
    angle = np.sin(2 * np.arcsin(sine))  # 0 on an axis, 1 at 45 degrees
    pull = sum(
        1 - np.exp((angle - 2) * d**2 / c**2) for d, c in ((dx, cw), (dy, ch))
    )
    off = [abs(a - b) / np.maximum(a, b) for a, b in ((w, tw), (h, th))]
    shape = sum((1 - np.exp(-one)) ** 4 for one in off)
    return {
        "CIoU": 1 - iou + far + alpha * v,
        "EIoU": 1 - iou + far + sides,
        "Focal-EIoU": iou**0.5 * (1 - iou + far + sides),
        "alpha-IoU": 1 - iou**3,
        "SIoU": 1 - iou + (pull + shape) / 2,
    }


random = np.random.default_rng(0)
many, others = np.abs(random.normal(size=(2, 1000, 4))) + 0.1
ours = complete_iou(*(ops.tensor(np.float32(one)) for one in (many, others)))
written = losses(many, others)["CIoU"]
assert np.allclose(1 - ops.to_numpy(ours), written, atol=1e-5)

target = np.array([[0.0, 0, 40, 40]])
print(f"{'':18}", *(f"{name:>10}" for name in losses(target, target)))
for name, box in (
    ("5 px to the right", [5, 0, 40, 40]),
    ("20 px to the right", [20, 0, 40, 40]),
    ("20 % larger", [0, 0, 48, 48]),
    ("wide, same area", [0, 0, 80, 20]),
    ("apart", [60, 60, 40, 40]),
):
    found = losses(np.array([box], float), target).values()
    print(f"{name:18}", *(f"{value[0]:10.2f}" for value in found))
# --8<-- [end:page]
