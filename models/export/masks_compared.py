"""Boxes and masks: those of a file compared with those of the model.

Before: `verify.py` ran the file. After: the file's line on screen, or its fault. Masks are compared
at the size of the prototypes, where every place counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from models.export.differences import MASKS, Batch, Verified
from models.export.matched import THIN, Candidates, find_rows
from models.export.rows_compared import detections_of, fault_of_all, note_pairs, pair
from utils.boxes import cxcywh_to_xyxy
from utils.detections import Detections
from utils.masks.assemble import THRESHOLD, masks_at

FEW_PLACES = 4  # of a small mask a single place may be more than the limit


def compare_mask_rows(result: Verified, batch: Batch) -> str:
    """Compare rows and prototypes, then what NMS finds; return what is too far apart."""
    rows, prototypes = (np.stack(outputs) for outputs in zip(*batch.found, strict=True))
    our_rows, our_prototypes = batch.trial.outputs
    end, tolerance = columns_of(batch), batch.tolerance
    if fault := fault_of_all(batch.noting(result), rows[..., :end], our_rows[..., :end], tolerance):
        return fault
    for name, found, expected in (
        ("coefficients", rows[..., end:], our_rows[..., end:]),
        ("prototypes", prototypes, our_prototypes),
    ):
        if found.shape != expected.shape:
            return f"it has {name} of shape {found.shape}, the model {expected.shape}"
        part = np.abs(found - expected).max() / max(np.abs(expected).max(), np.finfo("f4").tiny)
        if not part <= tolerance.others:
            return f"its {name} differ from the model's by up to {part:.2g} of the largest"
    for index, image in enumerate(zip(rows, prototypes, strict=True)):
        objects, masks, _ = found_in(batch, *image)
        if fault := fault_of_image(result, batch, index, objects, masks):
            return f"image {index}: {fault}"
    return ""


def compare_masks(result: Verified, batch: Batch) -> str:
    """Compare what a file with NMS and masks finds; return what is too far apart."""
    for index, (output, masks) in enumerate(batch.found):
        found = detections_of(output)
        if fault := fault_of_image(
            result, batch, index, found, masks[output[:, 4] != 0] > THRESHOLD
        ):
            return f"image {index}: {fault}"
    return ""


def columns_of(batch: Batch) -> int:
    """Return how many columns of a row are those of a box and its classes."""
    return 5 + len(batch.metadata.class_names)


class Found(NamedTuple):
    """What NMS finds in the rows of an image, with the masks of it."""

    objects: Detections
    masks: np.ndarray  # (K, h, w) bool
    coefficients: np.ndarray  # (K, M)


def found_in(batch: Batch, rows: np.ndarray, prototypes: np.ndarray) -> Found:
    """Return what NMS finds in the rows (N, 5 + C + M) of an image."""
    end = columns_of(batch)
    found, index = find_rows(np.ascontiguousarray(rows[:, :end]), batch.limits)
    boxes = (found.boxes_xyxy * scale_of(batch, prototypes)).astype(np.float32)
    size, coefficients = (prototypes.shape[1], prototypes.shape[2]), rows[index, end:]
    return Found(found, masks_at(prototypes, coefficients, boxes, size), coefficients)


def scale_of(batch: Batch, prototypes: np.ndarray) -> np.ndarray:
    """Return places of prototypes (M, h, w) per pixel of the images, (4,): x, y, x, y."""
    return np.array(prototypes.shape[:0:-1] * 2) / (batch.trial.images.shape[:1:-1] * 2)


def fault_of_image(
    result: Verified, batch: Batch, index: int, found: Detections, masks: np.ndarray
) -> str:
    """Pair what both find in an image, with their masks; return what is too far apart."""
    rows, prototypes = (output[index] for output in batch.trial.outputs)
    expected, our_masks, coefficients = found_in(batch, rows, prototypes)
    boxes_xyxy = cxcywh_to_xyxy(rows[:, :4])
    candidates = Candidates(boxes_xyxy, rows[:, : columns_of(batch)])
    pairs, fault = pair(result, batch, found, expected, candidates)
    noted = batch.noting(result)
    note_pairs(noted, found.take(pairs[:, 0]), expected.take(pairs[:, 1]))
    scale = scale_of(batch, prototypes)
    for place, other in pairs.tolist():
        unsure = is_unsure(prototypes, coefficients[other], batch.tolerance.scores)
        boxes = np.stack((found.boxes_xyxy[place], expected.boxes_xyxy[other]))
        unsure |= between_edges(boxes, scale, unsure.shape)
        least = batch.tolerance.masks
        fault = fault or fault_of_mask(noted, masks[place], our_masks[other], unsure, least)
    return fault


def is_unsure(prototypes: np.ndarray, coefficients: np.ndarray, near: float) -> np.ndarray:
    """Return where the model's own score is this near to the threshold, (h, w) bool."""
    sums = np.tensordot(coefficients.astype(np.float64), prototypes, axes=1)
    # The sigmoid, which cannot overflow in this form.
    return np.asarray(np.abs(np.tanh(sums / 2) / 2) <= near)


def between_edges(boxes_xyxy: np.ndarray, scale: np.ndarray, size: Sequence[int]) -> np.ndarray:
    """Return the places that may lie in only one of two boxes (2, 4), (h, w) bool.

    A box may begin a whole row later for a last digit, on which a file and a model may differ.
    """
    low, high = boxes_xyxy.min(axis=0) - THIN, boxes_xyxy.max(axis=0) + THIN
    both = _places_in(np.concatenate((high[:2], low[2:])) * scale, size)
    return _places_in(np.concatenate((low[:2], high[2:])) * scale, size) & ~both


def _places_in(box: np.ndarray, size: Sequence[int]) -> np.ndarray:
    """Return which places (h, w) lie in a box (4,), bool."""
    rows, columns = np.ogrid[: size[0], : size[1]]
    left, top, right, bottom = box
    inside = (left <= columns) & (columns < right) & (top <= rows) & (rows < bottom)
    return np.asarray(inside)


def fault_of_mask(
    result: Verified, found: np.ndarray, expected: np.ndarray, unsure: np.ndarray, least: float
) -> str:
    """Note how much of two masks (h, w) bool is only in one; return it if it is too much.

    unsure: places that may be in only one.
    """
    apart, union = found ^ expected, max(int((found | expected).sum()), 1)
    result.note(MASKS, float(apart.sum() / union))
    wrong = int((apart & ~unsure).sum())
    if wrong <= FEW_PLACES or 1 - wrong / union >= least:
        return ""
    return (
        f"a mask of {int(expected.sum())} cells differs in {wrong}, an IoU of "
        f"{1 - wrong / union:.3f}"
    )
