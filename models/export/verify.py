"""An exported file, run in its runtime, must predict what the model does in the same images.

Before: `trials.py` ran the model. After: `job.py` keeps the file or refuses it, and `by_layer.py`
says where the two differ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from backend.checks import CPU
from backend.words import count
from models.export.classes_compared import compare_logits
from models.export.compared import RESIZED, Tolerance
from models.export.differences import Batch, Verified
from models.export.masks_compared import compare_mask_rows, compare_masks
from models.export.matched import Limits
from models.export.rows_compared import compare_detections, compare_rows
from models.export.trials import Trial
from models.inference.exported import ExportedPredictor
from models.inference.protocol import network_input
from utils.runtimes.metadata import DETECTIONS, LOGITS, MASK_ROWS, MASKS, ROWS, Metadata
from utils.runtimes.outputs import KINDS
from utils.runtimes.runtime import Outputs, Runtime

# By the kind of output: notes how far a batch is from the model, and returns what is too far.
COMPARISONS: dict[str, Callable[[Verified, Batch], str]] = {
    ROWS: compare_rows,
    DETECTIONS: compare_detections,
    MASK_ROWS: compare_mask_rows,
    MASKS: compare_masks,
    LOGITS: compare_logits,
}


def verify(
    runtime: Runtime,
    expected: Metadata,
    trials: Sequence[Trial],
    limits: Limits,
    tolerance: Tolerance,
) -> Verified:
    """Run a file on the images of the trials and compare with the model; stop at a fault.

    Args:
        expected: the metadata that the file must have.
    """
    result = Verified()
    if runtime.metadata != expected:
        result.fault = f"its metadata is {runtime.metadata}, not {expected}"
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


def predict(runtime: Runtime, images: np.ndarray) -> list[Outputs]:
    """Return what a file predicts in each of the images (B, 3, H, W) uint8."""
    predictor = ExportedPredictor(runtime)
    return predictor(network_input(predictor, images, CPU))


def _compare(
    result: Verified, runtime: Runtime, trial: Trial, limits: Limits, tolerance: Tolerance
) -> str:
    """Compare what a file predicts in a batch with what the model does.

    Returns:
        What is beyond the tolerance; "" if nothing is.
    """
    found, metadata = predict(runtime, trial.images), runtime.metadata
    for index, outputs in enumerate(found if KINDS[metadata.output].has_nms else ()):
        if not all(np.isfinite(output).all() for output in outputs):
            return f"image {index}: the file's outputs are not finite (NaN or infinite)"
    return COMPARISONS[metadata.output](result, Batch(trial, found, metadata, limits, tolerance))
