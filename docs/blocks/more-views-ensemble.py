# --8<-- [start:page]
# Runs without a framework.
import numpy as np

from duet.utils.evaluation.coco.metric import DetectionEvaluator
from duet.utils.evaluation.nms import suppress_overlapping
from duet.utils.geometry.boxes import pairwise_iou
from duet.utils.geometry.detections import (
    Detections,
    GroundTruth,
    SuppressionSettings,
)

random = np.random.default_rng(0)
corners = random.uniform(0, 500, (300, 4, 2))  # 300 images of four objects
truths = np.concatenate([corners, corners + 100], axis=2)


def simulated(seed):
    """Rows (box, score) of each image: 70 % of the objects, two errors."""
    random = np.random.default_rng(seed)
    for truth in truths:
        found = truth[random.random(4) < 0.7]
        found = found + random.normal(0, 6, found.shape)
        wrong = np.tile(random.uniform(0, 500, (2, 2)), 2) + [0, 0, 90, 90]
        scores = np.append(
            random.uniform(0.3, 1, len(found)), random.uniform(0.1, 0.6, 2)
        )
        yield np.column_stack([np.concatenate([found, wrong]), scores])


def nms(rows, models):
    settings = SuppressionSettings(iou_threshold=0.45)
    zeros = np.zeros(len(rows), np.int64)
    rows = rows.astype(np.float32)
    return suppress_overlapping(
        Detections(rows[:, :4], rows[:, 4], zeros), settings
    )


def fusion(rows, models):
    """Means of the groups; a score is the sum over the number of models."""
    rows, groups = rows[np.argsort(-rows[:, 4])], []
    for row in rows:
        for group in groups:
            if pairwise_iou(group[0][None, :4], row[None, :4])[0, 0] > 0.45:
                group.append(row)
                break
        else:
            groups.append([row])
    boxes = [
        np.average(group, axis=0, weights=np.array(group)[:, 4])[:4]
        for group in groups
    ]
    scores = [min(sum(row[4] for row in one) / models, 1) for one in groups]
    zeros = np.zeros(len(groups), np.int64)
    return Detections(np.float32(boxes), np.float32(scores), zeros)


print("                         mAP50  mAP50-95  precision  recall")
for name, seeds, join in (
    ("one model", [1], nms),
    ("twice the same, NMS", [1, 1], nms),
    ("two models, NMS", [1, 2], nms),
    ("two models, fusion", [1, 2], fusion),
    ("four models, NMS", [1, 2, 3, 4], nms),
    ("four models, fusion", [1, 2, 3, 4], fusion),
):
    evaluator = DetectionEvaluator(["object"])
    members = zip(*(simulated(seed) for seed in seeds), strict=True)
    for index, (rows, truth) in enumerate(zip(members, truths, strict=True)):
        found = join(np.concatenate(rows), len(seeds))
        evaluator.add(index, found, GroundTruth(np.zeros(4, np.int64), truth))
    result = evaluator.result()
    measured = result.precision[0], result.recall[0]
    print(
        f"{name:22}{result.map50:8.3f}{result.map:10.3f}",
        f"{measured[0]:10.3f}{measured[1]:8.3f}",
    )
# --8<-- [end:page]
