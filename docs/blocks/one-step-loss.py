# --8<-- [start:page]
# Runs on torch and oneflow.
# Numbers agree to 1e-3.
from duet import backend

backend.use()
import numpy as np

from duet.backend import ops
from duet.models.graph import read_model_yaml
from duet.models.heads.anchor.assign import assign_targets
from duet.models.heads.anchor.boxes import complete_iou
from duet.models.heads.anchor.loss import DetectionLoss
from duet.utils.data.loading.batch import Targets
from duet.utils.strengths import LossGains


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def bce(logits, truth):
    soft = np.log1p(np.exp(-abs(logits)))
    return np.maximum(logits, 0) - logits * truth + soft


def losses(maps, targets, anchors, balance=(4.0, 1.0, 0.4)):
    """Box, objectness, classification of maps (B, A, H, W, 5 + C)."""
    grids = [level.shape[2:4] for level in maps]
    found = assign_targets(targets, anchors, grids, max_side_ratio=4.0)
    box = objectness = classification = 0.0
    for raw, level, factor in zip(maps, found, balance, strict=True):
        at = level.image_index, level.anchor_index, level.row, level.column
        rows = raw[at]  # (P, 5 + C): what must predict a target
        scores = sigmoid(rows[:, :4])
        sizes = (2 * scores[:, 2:]) ** 2 * level.anchors_wh
        boxes = np.concatenate([2 * scores[:, :2] - 0.5, sizes], axis=1)
        pair = [ops.tensor(x) for x in (boxes, level.boxes_cxcywh)]
        iou = ops.to_numpy(complete_iou(*pair))
        truth = np.zeros(raw.shape[:4], np.float32)
        truth[at] = np.maximum(iou, 0)
        objectness += factor * bce(raw[..., 4], truth).mean()
        wanted = np.eye(rows.shape[1] - 5)[level.class_index]
        box += (1 - iou).mean()
        classification += bce(rows[:, 5:], wanted).mean()
    return box, objectness, classification


pixels = read_model_yaml("models/yolov5n.yaml").document["anchors"]
anchors = np.reshape(pixels, (3, 3, 2)) / np.reshape((8, 16, 32), (3, 1, 1))
random = np.random.default_rng(0)
maps = [
    random.normal(-2, 1, (2, 3, side, side, 8)).astype(np.float32)
    for side in (16, 8, 4)
]
boxes = random.uniform(0.2, 0.6, (6, 4)).astype(np.float32)
targets = Targets(np.arange(6) % 2, np.arange(6) % 3, boxes)

plain = LossGains(1, 1, 1, 1, 1, max_side_ratio=4.0, focal_gamma=0.0)
loss = DetectionLoss(anchors, 3, plain)
ours = loss([ops.tensor(level) for level in maps], targets).by_name
print("              written out     Duet's")
for (name, term), value in zip(
    ours.items(), losses(maps, targets, anchors), strict=True
):
    print(f"{name:15}{value:10.4f}{float(ops.to_numpy(term)):11.4f}")
# --8<-- [end:page]
