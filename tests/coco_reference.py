"""The figures of pycocotools for the same detections and objects."""

from __future__ import annotations

import contextlib
import io
from typing import NamedTuple

import numpy as np
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from duet.utils.detections import Detections, GroundTruth
from duet.utils.evaluation.coco.matching import SIZE_RANGES
from duet.utils.evaluation.coco.metric import DetectionEvaluator, EvaluationResult

# Both sum the same float64 numbers, in another order.
EXACT = {"rtol": 0, "atol": 1e-9}
Image = tuple[Detections, GroundTruth]


class Reference(NamedTuple):
    """pycocotools' arrays, -1 for what has no objects."""

    precision: np.ndarray  # (10, 101, C, sizes, limits)
    recall: np.ndarray  # (10, C, sizes, limits)
    summary: np.ndarray  # (12,)


def detections(boxes_xyxy, scores, class_index) -> Detections:
    boxes = np.asarray(boxes_xyxy, np.float32).reshape(-1, 4)
    return Detections(boxes, np.asarray(scores, np.float32), np.asarray(class_index, np.int64))


def ground_truth(class_index, boxes_xyxy, is_crowd=None, area=None) -> GroundTruth:
    boxes = np.asarray(boxes_xyxy, np.float32).reshape(-1, 4)
    return GroundTruth(
        np.asarray(class_index, np.int64),
        boxes,
        None if is_crowd is None else np.asarray(is_crowd, bool),
        None if area is None else np.asarray(area, np.float64),
    )


def evaluate(images: dict[int, Image], num_classes: int) -> EvaluationResult:
    evaluator = DetectionEvaluator([f"class {index}" for index in range(num_classes)])
    for image_id, (found, objects) in images.items():
        evaluator.add(image_id, found, objects)
    return evaluator.result()


def annotations(image_id: int, boxes_xyxy: np.ndarray, class_index: np.ndarray) -> list[dict]:
    left_top_size = boxes_xyxy.astype(np.float64)
    left_top_size[:, 2:] -= left_top_size[:, :2]
    return [
        {"image_id": image_id, "category_id": int(label), "bbox": box, "iscrowd": 0,
         "area": box[2] * box[3]}
        for box, label in zip(left_top_size.tolist(), class_index, strict=True)
    ]  # fmt: skip


def object_annotations(images: dict[int, Image]) -> list[dict]:
    """Every object as COCO annotates it; ids from 1, for pycocotools takes 0 for "not matched"."""
    objects = []
    for image_id, (_, truth) in images.items():
        rows = annotations(image_id, truth.boxes_xyxy, truth.class_index)
        for number, row in enumerate(rows):
            if truth.is_crowd is not None:
                row["iscrowd"] = int(truth.is_crowd[number])
            if truth.area is not None:
                row["area"] = float(truth.area[number])
        objects += rows
    return [row | {"id": number} for number, row in enumerate(objects, start=1)]


def evaluate_by_pycocotools(images: dict[int, Image], num_classes: int) -> Reference:
    found = []
    for image_id, (image_detections, _) in images.items():
        boxes_xyxy, scores, class_index = image_detections
        rows = annotations(image_id, boxes_xyxy, class_index)
        found += [row | {"score": float(score)} for row, score in zip(rows, scores, strict=True)]
    dataset = {
        "info": {},
        "images": [{"id": image_id} for image_id in images],
        "categories": [{"id": index} for index in range(num_classes)],
    }
    results = COCO()
    results.dataset = dataset | {
        "annotations": [row | {"id": number} for number, row in enumerate(found, start=1)]
    }
    truth = COCO()
    truth.dataset = dataset | {"annotations": object_annotations(images)}
    with contextlib.redirect_stdout(io.StringIO()):
        truth.createIndex()
        results.createIndex()
        return reference_of(COCOeval(truth, results, "bbox"))


def reference_of(evaluation: COCOeval) -> Reference:
    evaluation.evaluate()
    evaluation.accumulate()
    evaluation.summarize()
    return Reference(evaluation.eval["precision"], evaluation.eval["recall"], evaluation.stats)


def assert_equal_to_pycocotools(images: dict[int, Image], num_classes: int) -> EvaluationResult:
    """Every curve and recall of every class, size, threshold and limit, and the summary."""
    result, expected = evaluate(images, num_classes), evaluate_by_pycocotools(images, num_classes)
    for index, name in enumerate(SIZE_RANGES):
        size = result.sizes[name]
        precision = unknown_as_nan(expected.precision[:, :, :, index, -1]).transpose(2, 0, 1)
        recall = unknown_as_nan(expected.recall[:, :, index]).transpose(1, 0, 2)
        np.testing.assert_allclose(size.precision_curves, precision, **EXACT)
        np.testing.assert_allclose(size.recall, recall, **EXACT)
        np.testing.assert_allclose(size.ap, precision.mean(axis=(1, 2)), **EXACT)
        np.testing.assert_allclose(size.ap50, precision[:, 0].mean(axis=1), **EXACT)
        np.testing.assert_allclose(size.ap75, precision[:, 5].mean(axis=1), **EXACT)
        np.testing.assert_allclose(size.ar, recall.mean(axis=1), **EXACT)
    summary = result.summary()
    np.testing.assert_allclose(list(summary.values()), unknown_as_nan(expected.summary), **EXACT)
    np.testing.assert_allclose(result.map, max(expected.summary[0], 0), **EXACT)
    np.testing.assert_allclose(result.means[2], max(expected.summary[1], 0), **EXACT)
    return result


def unknown_as_nan(figures: np.ndarray) -> np.ndarray:
    return np.where(figures < 0, np.nan, figures)
