# Runs without a framework.
import numpy as np

from duet.utils.detections import Detections, SuppressionSettings
from duet.utils.evaluation.nms import suppress_overlapping

# Of each model: left, top, right, bottom, score.
first = [[10, 10, 50, 50, 0.60], [80, 10, 120, 50, 0.70]]
second = [[12, 10, 52, 50, 0.80], [10, 80, 40, 110, 0.30]]

rows = np.array(first + second, np.float32)
together = Detections(rows[:, :4], rows[:, 4], np.zeros(len(rows), np.int64))
kept = suppress_overlapping(together, SuppressionSettings(iou_threshold=0.45))
for box, score in zip(kept.boxes_xyxy, kept.scores, strict=True):
    print(f"{score:.2f}", box.tolist())
