# Runs without a framework.
# --8<-- [start:example]
import numpy as np

# left, top, right, bottom, score: seven candidates around three objects.
candidates = np.array(
    [
        [20, 20, 80, 120, 0.92],
        [24, 22, 84, 122, 0.85],
        [18, 30, 78, 118, 0.60],
        [60, 24, 120, 124, 0.80],  # a second object, half hidden
        [64, 20, 124, 120, 0.55],
        [180, 40, 240, 100, 0.70],
        [184, 46, 246, 104, 0.40],
    ]
)
boxes, scores = candidates[:, :4], candidates[:, 4]


def iou(box, others):
    """IoU (N,) of a box (4,) and others (N, 4)."""
    low = np.maximum(box[:2], others[:, :2])
    high = np.minimum(box[2:], others[:, 2:])
    shared = np.clip(high - low, 0, None).prod(axis=1)
    area = (others[:, 2:] - others[:, :2]).prod(axis=1)
    return shared / ((box[2:] - box[:2]).prod() + area - shared)


# --8<-- [end:example]
# --8<-- [start:greedy]
def greedy(boxes, scores, threshold, overlap=iou):
    """Indices of the boxes that remain, best first."""
    left, kept = np.argsort(-scores, kind="stable"), []
    while len(left):
        best, rest = left[0], left[1:]
        kept.append(int(best))
        left = rest[overlap(boxes[best], boxes[rest]) <= threshold]
    return kept


for threshold in (0.1, 0.45, 0.8):
    kept = greedy(boxes, scores, threshold)
    print(f"--iou {threshold}: keeps {kept}, scores {scores[kept].tolist()}")
# --8<-- [end:greedy]
# --8<-- [start:agree]
from duet.utils.evaluation.nms import suppress_overlapping
from duet.utils.geometry.detections import Detections, SuppressionSettings

generator = np.random.default_rng(0)
corner = generator.uniform(0, 600, (2000, 2))
side = generator.uniform(10, 120, (2000, 2))
many = np.concatenate([corner, corner + side], axis=1).astype(np.float32)
rated = generator.random(2000).astype(np.float32)
found = Detections(many, rated, np.zeros(2000, np.int64))
settings = SuppressionSettings(iou_threshold=0.45, max_detections=2000)
ours = suppress_overlapping(found, settings)
plain = greedy(many.astype(float), rated, 0.45)
print(f"{len(many)} boxes: {len(plain)} and {len(ours.scores)} remain")
assert np.array_equal(many[plain], ours.boxes_xyxy)


# --8<-- [end:agree]
# --8<-- [start:soft]
def soft(boxes, scores, sigma=0.5, least=0.25):
    """Soft-NMS: a kept box lowers the scores of those that it overlaps."""
    scores, left, kept = scores.copy(), list(range(len(scores))), []
    while left:
        best = max(left, key=lambda index: scores[index])
        left.remove(best)
        if scores[best] < least:
            break
        kept.append((best, round(float(scores[best]), 2)))
        scores[left] *= np.exp(-(iou(boxes[best], boxes[left]) ** 2) / sigma)
    return kept


print("Soft-NMS keeps", *soft(boxes, scores))


# --8<-- [end:soft]
# --8<-- [start:distance]
def distance_iou(box, others):
    """DIoU (N,): IoU less (centre distance / diagonal of the hull)^2."""
    apart = (box[:2] + box[2:]) / 2 - (others[:, :2] + others[:, 2:]) / 2
    hull = np.maximum(box[2:], others[:, 2:]) - np.minimum(
        box[:2], others[:, :2]
    )
    return iou(box, others) - (apart**2).sum(axis=1) / (hull**2).sum(axis=1)


crowd = np.array([[20, 20, 80, 120, 0.9], [41, 22, 101, 122, 0.8]])
for name, overlap in (("IoU", iou), ("DIoU", distance_iou)):
    value = overlap(crowd[0, :4], crowd[1:, :4])[0]
    kept = greedy(crowd[:, :4], crowd[:, 4], 0.45, overlap)
    print(f"two people, {name} {value:.2f}: keeps {len(kept)}")


# --8<-- [end:distance]
# --8<-- [start:fusion]
def fuse(boxes, scores, threshold=0.55):
    """Weighted boxes: each group becomes the mean of its boxes by score."""
    fused = []
    for index in np.argsort(-scores, kind="stable"):
        for group in fused:
            middle = np.average(boxes[group], axis=0, weights=scores[group])
            if iou(middle, boxes[[index]])[0] > threshold:
                group.append(int(index))
                break
        else:
            fused.append([int(index)])
    return [
        np.average(boxes[group], axis=0, weights=scores[group]).round(1)
        for group in fused
    ]


for box in fuse(boxes, scores):
    print("fused", box.tolist())
# --8<-- [end:fusion]

from duet.utils.cli.val_config import ValConfig
from duet.utils.detect.config import DetectConfig
from duet.utils.evaluation.nms import MAX_CANDIDATES

values = {
    "detect_iou": DetectConfig.iou_threshold,
    "val_iou": ValConfig.iou_threshold,
    "most": f"{MAX_CANDIDATES:,}",
}
