"""The figures of pycocotools for the same detections, masks and objects."""

import contextlib
import io
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pycocotools import mask as coco_mask
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from duet.utils.data.sources.dataset import load_dataset
from duet.utils.data.sources.splits import load_split
from duet.utils.evaluation.coco.matching import SIZE_RANGES
from duet.utils.evaluation.coco.metric import (
    DetectionEvaluator,
    EvaluationResult,
    MaskResult,
    MetricResult,
    coco_masks,
)
from duet.utils.geometry.detections import Detections, GroundTruth, Ragged, Segmentations

# Both sum the same float64 numbers, in another order.
EXACT = {"rtol": 0, "atol": 1e-9}
Image = tuple[Any, GroundTruth]  # Detections or Segmentations, and the objects
Size = tuple[int, int]


class Reference(NamedTuple):
    """pycocotools' arrays, -1 for what has no objects."""

    precision: np.ndarray  # (10, 101, C, sizes, limits)
    recall: np.ndarray  # (10, C, sizes, limits)
    summary: np.ndarray  # (12,)


def detections(boxes_xyxy, scores, class_index) -> Detections:
    boxes = np.asarray(boxes_xyxy, np.float32).reshape(-1, 4)
    return Detections(boxes, np.asarray(scores, np.float32), np.asarray(class_index, np.int64))


def rows_as_detections(rows) -> Detections:
    """Detections of rows (left, top, right, bottom, score, class)."""
    table = np.asarray(rows, np.float64).reshape(-1, 6)
    return detections(table[:, :4], table[:, 4], table[:, 5])


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


def with_codes(rows: list[dict], runs: Ragged | None, size: Size | None) -> list[dict]:
    """Rows with their masks as pycocotools has them; unchanged without masks."""
    if runs is None or size is None:
        return rows
    codes = [{"size": list(size), "counts": row.tolist()} for row in runs.rows()]
    return [
        row | {"segmentation": coco_mask.frPyObjects(code, *size)}
        for row, code in zip(rows, codes, strict=True)
    ]


def by_pycocotools(
    images: dict[int, Image],
    num_classes: int,
    kind: str = "bbox",
    sizes: dict[int, Size] | None = None,
) -> Reference:
    """Its figures of "bbox" or "segm"; detections have the area of what is compared.

    sizes: those of the images, for masks.
    """
    found, objects = [], []
    for image_id, (seen, truth) in images.items():
        size = sizes and sizes[image_id]
        rows = annotations(image_id, seen.boxes_xyxy, seen.class_index)
        rows = with_codes(rows, getattr(seen, "masks", None), size)
        for row, score in zip(rows, seen.scores, strict=True):
            area = row["area"] if kind == "bbox" else int(coco_mask.area(row["segmentation"]))
            found.append(row | {"score": float(score), "area": area})
        rows = annotations(image_id, truth.boxes_xyxy, truth.class_index)
        for number, row in enumerate(with_codes(rows, truth.masks, size)):
            if truth.is_crowd is not None:
                row["iscrowd"] = int(truth.is_crowd[number])
            if truth.area is not None:
                row["area"] = float(truth.area[number])
            objects.append(row)
    dataset = {
        "info": {},
        "images": [
            {
                "id": image_id,
                **({"height": sizes[image_id][0], "width": sizes[image_id][1]} if sizes else {}),
            }
            for image_id in images
        ],
        "categories": [{"id": index} for index in range(num_classes)],
    }
    tables = [COCO(), COCO()]
    with contextlib.redirect_stdout(io.StringIO()):
        for table, rows in zip(tables, (objects, found), strict=True):
            # Numbers from 1, for pycocotools takes 0 for "not matched".
            numbered = [row | {"id": number} for number, row in enumerate(rows, start=1)]
            table.dataset = dataset | {"annotations": numbered}
            table.createIndex()
        return reference_of(COCOeval(*tables, kind))


def reference_of(evaluation: COCOeval) -> Reference:
    evaluation.evaluate()
    evaluation.accumulate()
    evaluation.summarize()
    return Reference(evaluation.eval["precision"], evaluation.eval["recall"], evaluation.stats)


def assert_equal(result: MetricResult, expected: Reference) -> None:
    """Every curve and recall of every class, size, threshold and limit, and the summary."""
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
    summary = list(result.summary().values())
    np.testing.assert_allclose(summary, unknown_as_nan(expected.summary), **EXACT)
    np.testing.assert_allclose(result.map, max(expected.summary[0], 0), **EXACT)
    np.testing.assert_allclose(result.means[2], max(expected.summary[1], 0), **EXACT)


def assert_equal_to_pycocotools(images: dict[int, Image], num_classes: int) -> EvaluationResult:
    result = evaluate(images, num_classes)
    assert_equal(result, by_pycocotools(images, num_classes))
    return result


def evaluate_masks(images: dict[int, Image], num_classes: int) -> MaskResult:
    evaluator = coco_masks([f"class {index}" for index in range(num_classes)])
    for image_id, (found, truth) in images.items():
        evaluator.add(image_id, found, truth)
    return evaluator.result()


def assert_masks_equal_pycocotools(
    images: dict[int, Image], sizes: dict[int, Size], num_classes: int
) -> MaskResult:
    result = evaluate_masks(images, num_classes)
    assert_equal(result.boxes, by_pycocotools(images, num_classes, "bbox", sizes))
    assert_equal(result.masks, by_pycocotools(images, num_classes, "segm", sizes))
    return result


def unknown_as_nan(figures: np.ndarray) -> np.ndarray:
    return np.where(figures < 0, np.nan, figures)


def as_coco(data: Path) -> dict[str, Any]:
    """The labels of a dataset's val split as COCO has them: outlines, and areas of masks."""
    dataset = load_dataset(data)
    images, objects = [], []
    for image_id, sample in enumerate(load_split(dataset, "val"), start=500):
        size = {"height": sample.height, "width": sample.width}
        images.append({"id": image_id, "file_name": sample.image_path.name, **size})
        for index, label in enumerate(sample.class_index.tolist()):
            x, y, width, height = sample.boxes_cxcywh_norm[index] * ([*size.values()][::-1] * 2)
            box = [x - width / 2, y - height / 2, width, height]
            left, top, right, bottom = box[0], box[1], box[0] + width, box[1] + height
            polygons = sample.polygons_norm
            if polygons is not None and polygons.num_points[index]:
                outline = polygons.outline(index) * [sample.width, sample.height]
            else:
                outline = np.array([[left, top], [left, bottom], [right, bottom], [right, top]])
            points = [np.float64(outline).ravel().tolist()]
            coded = coco_mask.merge(coco_mask.frPyObjects(points, *size.values()))
            objects.append({
                "id": len(objects) + 1, "image_id": image_id, "category_id": label,
                "bbox": [float(value) for value in box], "segmentation": points,
                "area": float(coco_mask.area(coded)), "iscrowd": 0,
            })  # fmt: skip
    categories = [{"id": i, "name": name} for i, name in enumerate(dataset.class_names)]
    return {"info": {}, "images": images, "annotations": objects, "categories": categories}


def by_pycocotools_of_files(annotations: Path, predictions: Path, kind: str) -> np.ndarray:
    """The summary of files: an instances JSON, and rows of --save-json."""
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO(str(annotations))
        found = truth.loadRes(str(predictions))
        return unknown_as_nan(reference_of(COCOeval(truth, found, kind)).summary)
