"""Which detection finds which object, as YOLOv5's old logs count.

Before: `evaluation/nms.py`. After: `curves.py`.
It is PASCAL VOC's rule, with the detections in the order in which they are listed. It gives the
stored process-batch arrays `pb0` to `pb7` of YOLOv5 (8 images, 229 detections, 10 thresholds)
without an exception. VOC's rule decides what these leave open:

- If a detection's best object went to another, it finds none, even if a second object is free.
- The best object is the best of the detection's class, whatever else it overlaps more.

They also leave equal numbers open. Here an IoU equal to a threshold reaches it, and of two equal
IoUs the first object's is the best.
Source: Everingham et al. 2010, "The PASCAL Visual Object Classes (VOC) Challenge".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from utils.detections import Detections, GroundTruth
from utils.evaluation.coco.matching import IOU_THRESHOLDS, position_in_run
from utils.evaluation.overlap import BOXES, Overlap


class Claims(NamedTuple):
    """Detections (D,) as they are listed, objects (M,), and which object each detection is for.

    Detections without an object of their class at the lowest threshold are in no pair (P,).
    """

    scores: np.ndarray  # (D,) float32
    class_index: np.ndarray  # (D,) int64
    object_class_index: np.ndarray  # (M,) int64
    pair_detection: np.ndarray  # (P,) int64, ascending index into (D,), each at most once
    pair_object: np.ndarray  # (P,) int64, index into (M,)
    pair_iou: np.ndarray  # (P,) float64, at least the lowest threshold


def claim_objects(detections: Any, ground_truth: GroundTruth, overlap: Overlap = BOXES) -> Claims:
    """Pair every detection of an image with the object of its class that it overlaps most.

    Crowds are left out: YOLO labels have none. The stored IoU (float32) is within 2e-7 of this one,
    and 1.6e-4 or more from any threshold.
    """
    objects = ground_truth
    if objects.is_crowd is not None:
        objects = objects.take(~objects.is_crowd)
    iou = overlap.iou(detections, objects, np.zeros(len(objects.class_index), bool))
    same_class = detections.class_index[:, None] == objects.class_index
    pair_detection, pair_object = np.nonzero(same_class & (iou >= IOU_THRESHOLDS[0]))
    pair_iou = iou[pair_detection, pair_object]
    order = np.lexsort((-pair_iou, pair_detection))
    best = order[position_in_run(pair_detection[order]) == 0]
    return Claims(
        detections.scores,
        detections.class_index,
        objects.class_index,
        pair_detection[best],
        pair_object[best],
        pair_iou[best],
    )


def join_claims(images: Sequence[Claims]) -> Claims:
    """Join the claims of several images, or of none, in the order of the images."""
    images = [_no_claims(), *images]
    detections_before = np.cumsum([0, *(len(image.scores) for image in images)])
    objects_before = np.cumsum([0, *(len(image.object_class_index) for image in images)])
    shifted = [
        image._replace(
            pair_detection=image.pair_detection + detections_before[place],
            pair_object=image.pair_object + objects_before[place],
        )
        for place, image in enumerate(images)
    ]
    return Claims(*(np.concatenate(field) for field in zip(*shifted, strict=True)))


def grant_claims(claims: Claims) -> np.ndarray:
    """Return (D, 10) bool: which detections find their object, column per IOU_THRESHOLDS.

    Of the detections that are for one object and reach the threshold, the first listed finds it.
    With the highest IoU instead, 252 of the 2,290 stored flags would be wrong; with the highest
    score, 236. The stored lists are in no order; those that NMS leaves are by score.
    """
    correct = np.zeros((len(claims.scores), len(IOU_THRESHOLDS)), dtype=bool)
    for column, threshold in enumerate(IOU_THRESHOLDS):
        reaches = np.flatnonzero(claims.pair_iou >= threshold)
        _, first = np.unique(claims.pair_object[reaches], return_index=True)
        correct[claims.pair_detection[reaches[first]], column] = True
    return correct


def _no_claims() -> Claims:
    nothing, no_boxes = np.zeros(0, np.int64), np.zeros((0, 4), np.float32)
    no_scores = np.zeros(0, np.float32)
    return claim_objects(Detections(no_boxes, no_scores, nothing), GroundTruth(nothing, no_boxes))
