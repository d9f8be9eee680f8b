"""Predictors of exported files: a wing of `models/inference/predictor.py`."""

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
from duet.utils.weights.load import ExportedWeights

LIMITS = {"confidence_threshold": "--conf", "iou_threshold": "--iou", "max_detections": "--max-det"}


def predictor_of(weights: ExportedWeights, half: bool) -> Predictor:
    """Return the predictor of an exported file.

    half: --half, which has no effect here, as logged.
    """
    path, metadata = weights.path, weights.runtime.metadata
    log_once("%s runs in %s", path, weights.runtime.name, level=logging.INFO)
    if half:
        log_once("--half: %s computes in %s, as it was exported", path, metadata.precision)
    within = metadata.suppression
    if limits := [f"{flag} {within[name]:g}" for name, flag in LIMITS.items() if name in within]:
        text = "%s includes NMS; flags that would keep more have no effect: %s"
        log_once(text, path, ", ".join(limits))
    return ExportedPredictor(weights.runtime, path)


class ExportedPredictor:
    """A `Predictor` whose network is an exported file.

    Attributes:
        path: path of the file, for messages.
        fixed_size: required (height, width) of images; None: any multiple of the stride.
    """

    takes_arrays = True

    def __init__(self, runtime: Runtime, path: str = "") -> None:
        self.runtime, self.path, metadata = runtime, path, runtime.metadata
        self.stride = metadata.stride
        self.fixed_size = None if metadata.dynamic else metadata.image_size
        self.head: Head = head_of(metadata, path)

    def __call__(self, images: Any) -> list[Outputs]:
        """Return the file's outputs for each image, without the batch axis.

        images: (B, 3, H, W), a uint8 array or, in an ensemble with models, a tensor in [0, 1].
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
        """Convert images (B, 3, H, W) to float32 in the file's input range."""
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
        """Run the file; UserError if the output shapes do not match its metadata."""
        found = self.runtime(images)
        shapes = [output.shape for output in found]
        if fault := fault_of_returned(self.runtime.metadata, shapes, batch_size):
            raise UserError(f"--weights {self.path}: {fault}; export it again")
        outputs = [output.astype(np.float32, copy=False) for output in found]
        return list(zip(*outputs, strict=True))

    def decode_above(self, raw: Sequence[Outputs], confidence_threshold: float) -> list[Any]:
        """Return the candidates in each image, like the head's `decode_above`."""
        kind, read = self.runtime.metadata.output, form_of(self.head).rows
        try:
            return [read(self.head, kind, image, confidence_threshold) for image in raw]
        except UserError as error:
            raise UserError(f"--weights {self.path}: {error}") from error

    def require_memory(self, shape: Sequence[int], trains: bool) -> None:
        """Accept any images: the runtime reports when memory runs out."""


def head_of(metadata: Metadata, path: str = "") -> Head:
    """Return the head that postprocesses a file's outputs; its network is in the file."""
    try:
        kind: Any = find_block(metadata.head).kind
        form = form_of(kind)
    except (UserError, AttributeError):  # an unknown name, or not a head
        form = None
    if form is None or metadata.output not in form.kinds:
        raise UserError(
            f"--weights {path}: files with the head {brief(metadata.head)} and output "
            f"{metadata.output} are not supported; use the weights it was exported from"
        )
    return form.head(kind, len(metadata.class_names))
