# --8<-- [start:page]
# Runs without a framework.
import numpy as np
from map_example import detections_of, objects, truth_of

from duet.utils.detections import Detections
from duet.utils.evaluation.coco.metric import DetectionEvaluator
from duet.utils.evaluation.legacy import LegacyEvaluator


def perfect(image):
    """Every object, exactly, with a score of its own."""
    truth = truth_of(image)
    scores = np.array([0.9, 0.8], np.float32) - np.float32(0.05 * image)
    return Detections(truth.boxes_xyxy, scores, truth.class_index)


print("mAP50                 COCO  YOLOv5")
for name, detections in (("the example", detections_of), ("perfect detections", perfect)):
    row = []
    for evaluator in (DetectionEvaluator(["thing"]), LegacyEvaluator(["thing"])):
        for image in range(len(objects)):
            evaluator.add(image, detections(image), truth_of(image))
        row.append(evaluator.result().map50)
    print(f"{name:18}{row[0]:8.4f}{row[1]:8.4f}")
# --8<-- [end:page]

from duet.utils.cli.val_config import ValConfig
from duet.utils.detect.config import DetectConfig
from duet.utils.evaluation.coco.matching import MAX_DETECTIONS_PER_CLASS

values = {
    "perfect": f"{row[1]:.3f}",
    "val_conf": ValConfig.confidence_threshold,
    "detect_conf": DetectConfig.confidence_threshold,
    "most": MAX_DETECTIONS_PER_CLASS,
}
