# Runs without a framework.
import contextlib
import io

from map_example import detections_of, found, objects, truth_of
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from duet.utils.evaluation.coco.metric import DetectionEvaluator


def annotations(boxes, image):
    for left, top, right, bottom, *score in boxes:
        width, height = right - left, bottom - top
        row = {"image_id": image, "category_id": 1, "bbox": [left, top, width, height]}
        yield row | {"area": width * height, "iscrowd": 0, "score": sum(score)}


def as_coco(boxes_of_images):
    rows = [row for image, boxes in enumerate(boxes_of_images) for row in annotations(boxes, image)]
    coco = COCO()
    coco.dataset = {
        "images": [{"id": image} for image in range(len(objects))],
        "categories": [{"id": 1}],
        "annotations": [row | {"id": number} for number, row in enumerate(rows, start=1)],
    }
    coco.createIndex()
    return coco


with contextlib.redirect_stdout(io.StringIO()):  # pycocotools tells of its progress
    judge = COCOeval(as_coco(objects), as_coco(found), "bbox")
    judge.evaluate()
    judge.accumulate()
    judge.summarize()

evaluator = DetectionEvaluator(["thing"])
for image in range(len(objects)):
    evaluator.add(image, detections_of(image), truth_of(image))
summary = evaluator.result().summary()

print("figure   pycocotools      Duet")
for (name, ours), theirs in zip(summary.items(), judge.stats, strict=True):
    if theirs >= 0:  # -1: there is no such object
        print(f"{name:9}{theirs:11.4f}{ours:10.4f}")
        assert abs(ours - theirs) < 1e-9
