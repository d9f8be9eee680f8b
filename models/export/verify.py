"""An exported file, run in its runtime, against the model: the same images, the same predictions.

Before: `trials.py` ran the model. After: `job.py` keeps the file or refuses it, and `by_layer.py`
says where the two part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from backend.checks import CPU
from backend.words import count
from models.export.compared import (
    BOX,
    RESIZED,
    SCORES,
    Tolerance,
    fault_of_rows,
    largest_difference,
)
from models.export.matched import Candidates, Limits, fault_of, find, match
from models.export.trials import Trial
from models.inference.exported import ExportedPredictor
from models.inference.protocol import network_input
from utils.boxes import clip_boxes, cxcywh_to_xyxy
from utils.detections import Detections
from utils.runtimes.metadata import PIXELS, ROWS, Metadata
from utils.runtimes.runtime import Runtime


@dataclass
class Verified:
    """How far a file is from the model, over all images.

    Attributes:
        scores, pixels: the largest differences of a score and of a number of a box; of rows where
            the file gives them, else of what both find; without images that the file resizes.
        num_found: detections of the model.
        num_matched: how many of them the file has too.
        fault: what is beyond the tolerance; "" if nothing is.
        failing: the trial in which that is; None where the file says the wrong of itself.
    """

    scores: float = 0.0
    pixels: float = 0.0
    num_found: int = 0
    num_matched: int = 0
    fault: str = ""
    failing: Trial | None = None

    @property
    def differences(self) -> str:
        return f"scores {self.scores:.2g}, boxes {self.pixels:.2g} px"

    @property
    def matches(self) -> str:
        return f"{self.num_matched:,} of {count(self.num_found, 'detection')}"


def verify(
    runtime: Runtime,
    expected: Metadata,
    trials: Sequence[Trial],
    limits: Limits,
    tolerance: Tolerance,
) -> Verified:
    """Run a file on the images of the trials and compare with the model; stop at a fault.

    Args:
        expected: what the file is to say of itself.
    """
    result = Verified()
    if runtime.metadata != expected:
        result.fault = f"it says of itself {runtime.metadata}, not {expected}"
    for trial in trials:
        if not result.fault:
            # Of the two the wider one; the first number decides.
            allowed = max(tolerance, RESIZED) if trial.is_resized else tolerance
            fault = _compare(result, runtime, trial, limits, allowed)
            images, (height, width) = count(len(trial.images), "image"), trial.images.shape[2:]
            if fault:
                result.fault = f"in {images} of {width} x {height} px, {fault}"
                result.failing = trial
    return result


def predict(runtime: Runtime, images: np.ndarray) -> list[np.ndarray]:
    """Return what a file predicts in each of the images (B, 3, H, W) uint8."""
    predictor = ExportedPredictor(runtime)
    return list(predictor(network_input(predictor, images, CPU)))


def _compare(
    result: Verified, runtime: Runtime, trial: Trial, limits: Limits, tolerance: Tolerance
) -> str:
    """Compare what a file predicts in a batch with the rows of the model.

    Returns:
        What is beyond the tolerance; "" if nothing is.
    """
    outputs, gives_rows = predict(runtime, trial.images), runtime.metadata.output == ROWS
    figures = Verified() if trial.is_resized else result  # those of resizing are not the model's
    if gives_rows and (fault := _compare_rows(figures, np.stack(outputs), trial.rows, tolerance)):
        return fault
    for index, (output, rows) in enumerate(zip(outputs, trial.rows, strict=True)):
        if not np.isfinite(output).all():
            return f"image {index}: what it finds is no number (NaN or infinite)"
        found = find(output, limits) if gives_rows else detections_of(output)
        expected, boxes_xyxy = find(rows, limits), cxcywh_to_xyxy(rows[:, :4])
        if (
            not gives_rows and runtime.metadata.image == PIXELS
        ):  # its boxes end at the image's edges
            size = trial.images.shape[2:]
            boxes_xyxy = clip_boxes(boxes_xyxy, size)
            expected = expected._replace(boxes_xyxy=clip_boxes(expected.boxes_xyxy, size))
        pairs = match(found, expected, tolerance)
        result.num_found += len(expected.scores)
        result.num_matched += len(pairs)
        if not gives_rows:
            _note_pairs(figures, found.take(pairs[:, 0]), expected.take(pairs[:, 1]))
        candidates = Candidates(boxes_xyxy, rows)
        if fault := fault_of(found, expected, candidates, pairs, limits, tolerance):
            return f"image {index}: {fault}"
    return ""


def _compare_rows(
    result: Verified, rows: np.ndarray, expected: np.ndarray, tolerance: Tolerance
) -> str:
    if rows.shape != expected.shape:
        return f"it predicts rows of shape {rows.shape}, the model {expected.shape}"
    result.scores = max(result.scores, largest_difference(rows, expected, SCORES))
    result.pixels = max(result.pixels, largest_difference(rows, expected, BOX))
    return fault_of_rows(rows, expected, SCORES, tolerance.row_scores) or fault_of_rows(
        rows, expected, BOX, tolerance.row_pixels
    )


def _note_pairs(result: Verified, found: Detections, expected: Detections) -> None:
    scores, pixels = np.abs(found.scores - expected.scores), found.boxes_xyxy - expected.boxes_xyxy
    result.scores = max(result.scores, float(scores.max(initial=0)))
    result.pixels = max(result.pixels, float(np.abs(pixels).max(initial=0)))


def detections_of(output: np.ndarray) -> Detections:
    """Return what a file with NMS found in an image: of (K, 6) the rows that are used."""
    used = output[output[:, 4] != 0]
    return Detections(used[:, :4], used[:, 4], used[:, 5].astype(np.int64))
