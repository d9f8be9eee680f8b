"""An exported file -> a predictor: a wing of `models/inference/predictor.py`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np

from duet.backend import ops
from duet.models.blocks.registry import find_block
from duet.models.export.exported_heads import form_of
from duet.models.heads.base import Head
from duet.models.inference.predictor import log_once
from duet.models.inference.predictors import Predictor
from duet.utils.errors import UserError, brief
from duet.utils.export.metadata import FLOATS, Metadata, Outputs, Runtime, fault_of_returned
from duet.utils.weights.detecting import ExportedWeights

LIMITS = {"confidence_threshold": "--conf", "iou_threshold": "--iou", "max_detections": "--max-det"}


def predictor_of(weights: ExportedWeights, half: bool) -> Predictor:
    """Return the predictor of an exported file.

    half: --half, which has no effect here; a line says so.
    """
    path, metadata = weights.path, weights.runtime.metadata
    log_once("%s runs in %s", path, weights.runtime.name, level=logging.INFO)
    if half:
        log_once("--half: %s computes in %s, as it was exported", path, metadata.precision)
    within = metadata.suppression
    if limits := [f"{flag} {within[name]:g}" for name, flag in LIMITS.items() if name in within]:
        text = "%s has NMS in it, and flags that would keep more have no effect: %s"
        log_once(text, path, ", ".join(limits))
    return ExportedPredictor(weights.runtime, path)


class ExportedPredictor:
    """A `Predictor` whose network is a file in its runtime.

    Attributes:
        path: of the file, for messages.
        fixed_size: (height, width) that every image must have; None: any multiple of the stride.
    """

    takes_arrays = True

    def __init__(self, runtime: Runtime, path: str = "") -> None:
        self.runtime, self.path, metadata = runtime, path, runtime.metadata
        self.stride = metadata.stride
        self.fixed_size = None if metadata.dynamic else metadata.image_size
        self.head: Head = head_of(metadata, path)

    def __call__(self, images: Any) -> list[Outputs]:
        """Return of each image what the file predicts, without the batch.

        images: (B, 3, H, W), an array uint8 or, beside models of the backend, a tensor in [0, 1].
        """
        if not isinstance(images, np.ndarray):
            images = ops.to_numpy(images)
        metadata = self.runtime.metadata
        if metadata.dynamic:
            return self._run(self._taken(images), len(images))
        found: list[Outputs] = []
        for start in range(0, len(images), metadata.batch_size):
            batch = images[start : start + metadata.batch_size]
            missing = metadata.batch_size - len(batch)
            filled = np.concatenate((batch, np.repeat(batch[-1:], missing, axis=0)))
            found += self._run(self._taken(filled), len(filled))[: len(batch)]
        return found

    def _taken(self, images: np.ndarray) -> np.ndarray:
        """Return images (B, 3, H, W) as float32 numbers of the range that the file takes."""
        if images.dtype == np.uint8:
            floats = np.divide(images, np.float32(255), dtype=np.float32)
        else:
            floats = np.ascontiguousarray(images, np.float32)
        if self.runtime.metadata.image == FLOATS:
            return floats
        mean, deviation = (
            np.array(values, np.float32).reshape(3, 1, 1)
            for values in (self.head.image_mean, self.head.image_std)
        )
        return (floats - mean) / deviation

    def _run(self, images: np.ndarray, batch_size: int) -> list[Outputs]:
        """Return what the file predicts; UserError if its metadata has another shape."""
        found = self.runtime(images)
        shapes = [output.shape for output in found]
        if fault := fault_of_returned(self.runtime.metadata, shapes, batch_size):
            raise UserError(f"--weights {self.path}: {fault}; export it again")
        outputs = [output.astype(np.float32, copy=False) for output in found]
        return list(zip(*outputs, strict=True))

    def decode_above(self, raw: Sequence[Outputs], confidence_threshold: float) -> list[Any]:
        """Return what may count as found in each image, as the head's `decode_above` does."""
        kind, read = self.runtime.metadata.output, form_of(self.head).rows
        try:
            return [read(self.head, kind, image, confidence_threshold) for image in raw]
        except UserError as error:
            raise UserError(f"--weights {self.path}: {error}") from error

    def require_memory(self, shape: Sequence[int], trains: bool) -> None:
        """Take any images: the runtime says when they are too many."""


def head_of(metadata: Metadata, path: str = "") -> Head:
    """Return the head that finishes what a file returns; its own network is in the file."""
    try:
        kind: Any = find_block(metadata.head).kind
        form = form_of(kind)
    except (UserError, AttributeError):  # an unknown name, or that of no head
        form = None
    if form is None or metadata.output not in form.kinds:
        raise UserError(
            f"--weights {path}: it was exported with the head {brief(metadata.head)} and returns "
            f"{metadata.output}; such files cannot be run here; give weights"
        )
    return form.head(kind, len(metadata.class_names))
