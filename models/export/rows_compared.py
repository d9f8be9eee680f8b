"""Rows, or what NMS found in them: those of a file compared with those of the model.

Before: `verify.py` ran the file. After: `matched.py` pairs what both find.
"""

from __future__ import annotations

import numpy as np

from models.export.compared import BOX, SCORES, Tolerance, fault_of_rows, largest_difference
from models.export.differences import PIXELS as DISTANCE
from models.export.differences import SCORES as DISTANCE_OF_SCORES
from models.export.differences import Batch, Verified
from models.export.matched import Candidates, fault_of, find, match
from utils.boxes import clip_boxes, cxcywh_to_xyxy
from utils.detections import Detections
from utils.runtimes.metadata import PIXELS


def compare_rows(result: Verified, batch: Batch) -> str:
    """Compare all rows, then what NMS finds in them; return what is too far apart."""
    rows = np.stack([outputs[0] for outputs in batch.found])
    if fault := fault_of_all(batch.noting(result), rows, batch.trial.outputs[0], batch.tolerance):
        return fault
    for index, (found, expected) in enumerate(zip(rows, batch.trial.outputs[0], strict=True)):
        model = find(expected, batch.limits)
        boxes_xyxy = cxcywh_to_xyxy(expected[:, :4])
        _, fault = pair(
            result, batch, find(found, batch.limits), model, Candidates(boxes_xyxy, expected)
        )
        if fault:
            return f"image {index}: {fault}"
    return ""


def compare_detections(result: Verified, batch: Batch) -> str:
    """Compare what a file with NMS finds; return what is too far apart."""
    for index, ((output,), rows) in enumerate(
        zip(batch.found, batch.trial.outputs[0], strict=True)
    ):
        found, expected = detections_of(output), find(rows, batch.limits)
        boxes_xyxy = cxcywh_to_xyxy(rows[:, :4])
        if batch.metadata.image == PIXELS:  # its boxes end at the image's edges
            size = batch.trial.images.shape[2:]
            boxes_xyxy = clip_boxes(boxes_xyxy, size)
            expected = expected._replace(boxes_xyxy=clip_boxes(expected.boxes_xyxy, size))
        pairs, fault = pair(result, batch, found, expected, Candidates(boxes_xyxy, rows))
        note_pairs(batch.noting(result), found.take(pairs[:, 0]), expected.take(pairs[:, 1]))
        if fault:
            return f"image {index}: {fault}"
    return ""


def pair(
    result: Verified,
    batch: Batch,
    found: Detections,
    expected: Detections,
    candidates: Candidates,
) -> tuple[np.ndarray, str]:
    """Count what both find in an image; return the places of pairs, and what only one finds."""
    pairs = match(found, expected, batch.tolerance)
    result.num_found += len(expected.scores)
    result.num_matched += len(pairs)
    return pairs, fault_of(found, expected, candidates, pairs, batch.limits, batch.tolerance)


def fault_of_all(
    result: Verified, rows: np.ndarray, expected: np.ndarray, tolerance: Tolerance
) -> str:
    """Note the largest differences of rows (B, N, 5 + C); return what is too far apart."""
    if rows.shape != expected.shape:
        return f"it predicts rows of shape {rows.shape}, the model {expected.shape}"
    result.note(DISTANCE_OF_SCORES, largest_difference(rows, expected, SCORES))
    result.note(DISTANCE, largest_difference(rows, expected, BOX))
    return fault_of_rows(rows, expected, SCORES, tolerance.row_scores) or fault_of_rows(
        rows, expected, BOX, tolerance.row_pixels
    )


def note_pairs(result: Verified, found: Detections, expected: Detections) -> None:
    """Note the largest differences of pairs."""
    scores, pixels = np.abs(found.scores - expected.scores), found.boxes_xyxy - expected.boxes_xyxy
    result.note(DISTANCE_OF_SCORES, float(scores.max(initial=0)))
    result.note(DISTANCE, float(np.abs(pixels).max(initial=0)))


def detections_of(output: np.ndarray) -> Detections:
    """Return what a file with NMS found in an image: of (K, 6) the rows that are used."""
    used = output[output[:, 4] != 0]
    return Detections(used[:, :4], used[:, 4], used[:, 5].astype(np.int64))
