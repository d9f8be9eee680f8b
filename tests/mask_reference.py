"""The results of pycocotools for the same masks, and masks to test with."""

from __future__ import annotations

import contextlib
import io

import numpy as np
from pycocotools import mask as coco_mask
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from duet.utils.detections import GroundTruth, Segmentations
from duet.utils.evaluation.coco.matching import SIZE_RANGES
from duet.utils.evaluation.coco.metric import MaskResult, MetricResult, coco_masks
from duet.utils.ragged import Ragged
from tests.coco_reference import EXACT, Reference, annotations, reference_of, unknown_as_nan

Image = tuple[Segmentations, GroundTruth]
Size = tuple[int, int]


def runs_of(masks) -> Ragged:
    """COCO's runs of masks (K, H, W), by pycocotools' encoder and a decoder of bytes."""
    rows = []
    for mask in masks:
        flat = np.asarray(mask, bool).reshape(-1, order="F")
        changes = np.flatnonzero(np.diff(flat, prepend=False))
        rows.append(np.diff(changes, prepend=0, append=len(flat)))
    return Ragged.of(rows, np.uint32)


def boxes_around(masks) -> np.ndarray:
    boxes = []
    for mask in masks:
        y, x = np.nonzero(mask)
        boxes.append([x.min(), y.min(), x.max() + 1, y.max() + 1] if len(x) else [0, 0, 0, 0])
    return np.array(boxes, np.float32).reshape(-1, 4)


def segmentations(masks, scores, class_index, boxes_xyxy=None) -> Segmentations:
    boxes = boxes_around(masks) if boxes_xyxy is None else boxes_xyxy
    scores = np.asarray(scores, np.float32)
    boxes = np.asarray(boxes, np.float32).reshape(-1, 4)
    return Segmentations(boxes, scores, np.asarray(class_index, np.int64), runs_of(masks))


def masked_truth(masks, class_index, is_crowd=None, area=None) -> GroundTruth:
    if area is None:
        area = [np.count_nonzero(mask) for mask in masks]
    return GroundTruth(
        np.asarray(class_index, np.int64),
        boxes_around(masks),
        None if is_crowd is None else np.asarray(is_crowd, bool),
        np.asarray(area, np.float64),
        runs_of(masks),
    )


def coded(runs: Ragged, size: Size) -> list[dict]:
    """Runs as pycocotools has them."""
    rows = [{"size": list(size), "counts": row.tolist()} for row in runs.rows()]
    return [coco_mask.frPyObjects(row, *size) for row in rows]


def by_pycocotools(
    images: dict[int, Image], sizes: dict[int, Size], num_classes: int, kind: str
) -> Reference:
    """Its figures of "bbox" or "segm"; detections have the area of what is compared."""
    found, objects = [], []
    for image_id, (seen, truth) in images.items():
        codes = coded(seen.masks, sizes[image_id])
        rows = annotations(image_id, seen.boxes_xyxy, seen.class_index)
        for row, score, code in zip(rows, seen.scores.tolist(), codes, strict=True):
            area = row["area"] if kind == "bbox" else int(coco_mask.area(code))
            found.append(row | {"score": score, "segmentation": code, "area": area})
        rows = annotations(image_id, truth.boxes_xyxy, truth.class_index)
        crowds = np.zeros(len(rows), bool) if truth.is_crowd is None else truth.is_crowd
        codes = coded(truth.masks, sizes[image_id])
        for row, code, area, is_crowd in zip(
            rows, codes, truth.area.tolist(), crowds.tolist(), strict=True
        ):
            objects.append(row | {"segmentation": code, "area": area, "iscrowd": int(is_crowd)})
    dataset = {
        "info": {},
        "images": [
            {"id": image_id, "height": sizes[image_id][0], "width": sizes[image_id][1]}
            for image_id in images
        ],
        "categories": [{"id": index} for index in range(num_classes)],
    }
    tables = [COCO(), COCO()]
    with contextlib.redirect_stdout(io.StringIO()):
        for table, rows in zip(tables, (objects, found), strict=True):
            numbered = [row | {"id": number} for number, row in enumerate(rows, start=1)]
            table.dataset = dataset | {"annotations": numbered}
            table.createIndex()
        return reference_of(COCOeval(*tables, kind))


def evaluate_masks(images: dict[int, Image], num_classes: int) -> MaskResult:
    evaluator = coco_masks([f"class {index}" for index in range(num_classes)])
    for image_id, (found, truth) in images.items():
        evaluator.add(image_id, found, truth)
    return evaluator.result()


def assert_equal(result: MetricResult, expected: Reference) -> None:
    """Every curve and recall of every class, size, threshold and limit, and the summary."""
    for index, name in enumerate(SIZE_RANGES):
        precision = unknown_as_nan(expected.precision[:, :, :, index, -1]).transpose(2, 0, 1)
        recall = unknown_as_nan(expected.recall[:, :, index]).transpose(1, 0, 2)
        np.testing.assert_allclose(result.sizes[name].precision_curves, precision, **EXACT)
        np.testing.assert_allclose(result.sizes[name].recall, recall, **EXACT)
    summary = list(result.summary().values())
    np.testing.assert_allclose(summary, unknown_as_nan(expected.summary), **EXACT)


def assert_masks_equal_pycocotools(
    images: dict[int, Image], sizes: dict[int, Size], num_classes: int
) -> MaskResult:
    result = evaluate_masks(images, num_classes)
    assert_equal(result.boxes, by_pycocotools(images, sizes, num_classes, "bbox"))
    assert_equal(result.masks, by_pycocotools(images, sizes, num_classes, "segm"))
    return result
