# Runs without a framework.
# --8<-- [start:example]
import numpy as np

from duet.utils.geometry.detections import Detections, GroundTruth

# Two images with objects of one class: left, top, right, bottom in pixels.
objects = [
    [[10, 10, 50, 50], [34, 10, 74, 50]],
    [[20, 20, 80, 80], [100, 10, 140, 50]],
]
# What a model found in them, each with its score.
found = [
    [[12, 10, 52, 50, 0.90], [21, 10, 61, 50, 0.80], [10, 90, 40, 120, 0.60]],
    [
        [100, 70, 130, 90, 0.75],
        [24, 26, 84, 86, 0.70],
        [20, 20, 78, 76, 0.50],
    ],
]


def truth_of(image):
    boxes = np.array(objects[image], np.float32)
    return GroundTruth(np.zeros(len(boxes), np.int64), boxes)


def detections_of(image):
    rows = np.array(found[image], np.float32)
    return Detections(rows[:, :4], rows[:, 4], np.zeros(len(rows), np.int64))


# --8<-- [end:example]
# --8<-- [start:match]
from duet.utils.geometry.boxes import pairwise_iou


def match(threshold):
    """All detections, best first: (score, IoU with its object or None)."""
    rows = []
    for image in range(len(found)):
        detections, truth = detections_of(image), truth_of(image)
        iou = pairwise_iou(detections.boxes_xyxy, truth.boxes_xyxy)
        free = set(range(len(objects[image])))
        for index in (-detections.scores).argsort(kind="stable"):
            best = max(
                free, key=lambda number: iou[index, number], default=None
            )
            hit = best is not None and iou[index, best] >= threshold
            if hit:
                free.remove(best)
            rows.append(
                (detections.scores[index], iou[index, best] if hit else None)
            )
    return sorted(rows, key=lambda row: -row[0])


for threshold in (0.5, 0.75):
    print(f"IoU threshold {threshold}")
    for score, iou in match(threshold):
        result = "wrong" if iou is None else f"right, IoU {iou:.2f}"
        print(f"  score {score:.2f}: {result}")


# --8<-- [end:match]
# --8<-- [start:curve]
def average_precision(threshold, shown=False):
    right = np.array([iou is not None for _, iou in match(threshold)])
    precision = np.cumsum(right) / np.arange(1, len(right) + 1)
    recall = np.cumsum(right) / sum(map(len, objects))
    # The best precision at this recall or any higher one.
    best = np.maximum.accumulate(precision[::-1])[::-1]
    if shown:
        print("detections  recall  precision  best from here on")
        for number, row in enumerate(
            zip(recall, precision, best, strict=True), start=1
        ):
            print("{:10}{:8.2f}{:11.2f}{:19.2f}".format(number, *row))
    grid = np.linspace(0, 1, 101)
    reached = np.searchsorted(
        recall, grid
    )  # the first detection to reach each
    return np.append(best, 0)[reached].mean()  # 0 beyond the last recall


ap50 = average_precision(0.5, shown=True)
by_threshold = []
for threshold in np.linspace(0.5, 0.95, 10):
    by_threshold.append(average_precision(threshold))
    print(f"AP at IoU {threshold:.2f}: {by_threshold[-1]:.4f}")
print(f"AP50 {ap50:.4f}, AP50-95 {np.mean(by_threshold):.4f}")
# --8<-- [end:curve]
# --8<-- [start:f1]
tp = np.cumsum([iou is not None for _, iou in match(0.5)])
fp = np.arange(1, len(tp) + 1) - tp
fn = sum(map(len, objects)) - tp
print("lowest score  TP  FP  FN  precision  recall    F1")
for (score, _), t, f, n in zip(match(0.5), tp, fp, fn, strict=True):
    p, r = t / (t + f), t / (t + n)
    f1 = 2 * p * r / (p + r)
    print(f"{score:12.2f}{t:4}{f:4}{n:4}{p:11.2f}{r:8.2f}{f1:6.2f}")
# --8<-- [end:f1]
# --8<-- [start:pycocotools]
import contextlib
import io

from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from duet.utils.evaluation.coco.metric import DetectionEvaluator


def annotations(boxes, image):
    for left, top, right, bottom, *score in boxes:
        width, height = right - left, bottom - top
        row = {"image_id": image, "category_id": 1, "score": sum(score)}
        row |= {"bbox": [left, top, width, height], "iscrowd": 0}
        yield row | {"area": width * height}


def as_coco(boxes_of_images):
    rows = []
    for image, boxes in enumerate(boxes_of_images):
        rows += annotations(boxes, image)
    coco = COCO()
    coco.dataset = {
        "images": [{"id": image} for image in range(len(objects))],
        "categories": [{"id": 1}],
        "annotations": [
            row | {"id": id} for id, row in enumerate(rows, start=1)
        ],
    }
    coco.createIndex()
    return coco


with contextlib.redirect_stdout(io.StringIO()):  # it prints its progress
    reference = COCOeval(as_coco(objects), as_coco(found), "bbox")
    reference.evaluate()
    reference.accumulate()
    reference.summarize()

evaluator = DetectionEvaluator(["thing"])
for image in range(len(objects)):
    evaluator.add(image, detections_of(image), truth_of(image))
summary = evaluator.result().summary()

print("metric   pycocotools      Duet")
for (name, ours), theirs in zip(
    summary.items(), reference.stats, strict=True
):
    if theirs >= 0:  # -1: there is no such object
        print(f"{name:9}{theirs:11.4f}{ours:10.4f}")
        assert abs(ours - theirs) < 1e-9
# --8<-- [end:pycocotools]

from duet.utils.evaluation.legacy import LegacyEvaluator


def perfect(image):
    """Every object, exactly, with a score of its own."""
    truth = truth_of(image)
    scores = np.array([0.9, 0.8], np.float32) - np.float32(0.05 * image)
    return Detections(truth.boxes_xyxy, scores, truth.class_index)


legacy = LegacyEvaluator(["thing"])
for image in range(len(objects)):
    legacy.add(image, perfect(image), truth_of(image))

from duet.utils.cli.val_config import ValConfig
from duet.utils.detect.config import DetectConfig
from duet.utils.evaluation.coco.matching import MAX_DETECTIONS_PER_CLASS

values = {
    "ap50": f"{ap50:.4f}",
    "ap": f"{np.mean(by_threshold):.4f}",
    "perfect": f"{legacy.result().map50:.3f}",
    "val_conf": ValConfig.confidence_threshold,
    "detect_conf": DetectConfig.confidence_threshold,
    "most": MAX_DETECTIONS_PER_CLASS,
}
