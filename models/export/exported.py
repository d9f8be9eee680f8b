"""Exported files as predictors (a wing of `models/inference/predictor.py`): outputs by task."""

import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from duet.backend import ops
from duet.backend.contract import Tensor
from duet.models.blocks.registry import find_block
from duet.models.heads.anchor.boxes import BOX_CHANNELS
from duet.models.heads.base import Candidates, Head
from duet.models.heads.mask.head import MaskRows
from duet.models.inference.predictor import log_once
from duet.models.inference.predictors import Predictor
from duet.utils.errors import UserError, brief, naming_weights
from duet.utils.export.metadata import (
    DETECTIONS,
    FLOATS,
    LOGITS,
    MASK_ROWS,
    MASKS,
    MOST_MASKS,
    RAW,
    ROWS,
    Metadata,
    Outputs,
    Runtime,
    fault_of_returned,
)
from duet.utils.geometry.detections import SuppressionSettings
from duet.utils.text import count
from duet.utils.weights.load import ExportedWeights

CERTAIN = 1e-6  # distance from 0 and 1, whose logits are infinite
LIMITS = {"confidence_threshold": "--conf", "iou_threshold": "--iou", "max_detections": "--max-det"}


def predictor_of(weights: ExportedWeights, half: bool) -> Predictor:
    """Return the predictor of an exported file.

    half: --half, which has no effect here, as logged.
    """
    path, metadata = weights.path, weights.runtime.metadata
    if metadata.output == RAW:
        raise UserError(
            f"--weights {path}: a file of --raw returns maps for a board's own decoding; use the "
            "weights it was exported from, or export it again without --raw"
        )
    log_once("%s runs in %s", path, weights.runtime.name, level=logging.INFO)
    if half:
        log_once("--half: %s computes in %s, as it was exported", path, metadata.precision)
    within = metadata.suppression
    if limits := [f"{flag} {within[name]:g}" for name, flag in LIMITS.items() if name in within]:
        text = "%s includes NMS; flags that would keep more have no effect: %s"
        log_once(text, path, ", ".join(limits))
    return ExportedPredictor(weights.runtime, path)


class ExportedPredictor:
    """A `Predictor` whose network is an exported file; path: for messages."""

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

    def decode_above(
        self, raw: Sequence[Outputs], settings: SuppressionSettings
    ) -> list[Candidates]:
        kind, read = self.runtime.metadata.output, form_of(self.head).rows
        with naming_weights(self.path):
            return [read(self.head, kind, image, settings.confidence_threshold) for image in raw]

    def require_memory(self, shape: Sequence[int], trains: bool) -> None:
        """Accept any images: the runtime reports when memory runs out."""


def head_of(metadata: Metadata, path: str = "") -> Head:
    """Return the head that postprocesses a file's outputs; its network is in the file."""
    try:
        kind: Any = find_block(metadata.head).kind
        form = form_of(kind)
    except (UserError, AttributeError):  # an unknown name, or not a head
        form = None
    if form is None or metadata.output not in (*form.kinds, RAW):
        raise UserError(
            f"--weights {path}: files with the head {brief(metadata.head)} and output "
            f"{metadata.output} are not supported; use the weights it was exported from"
        )
    return form.head(kind, len(metadata.class_names))


class ExportedForm(NamedTuple):
    # Kinds of output (`utils/export/metadata.py`): without NMS, and with --nms unless refused.
    kinds: tuple[str, ...]
    # Maps a head and raw outputs to the outputs of a file without NMS, (B, ...) each.
    outputs: Callable[[Head, Sequence[Tensor]], tuple[Tensor, ...]]
    # `Head.decode_above` of one image: a head, a kind, a file's outputs, the confidence threshold.
    rows: Callable[[Head, str, Outputs, float], Any]
    # Makes a head for postprocessing from its class and the number of classes.
    head: Callable[[Any, int], Head]


def form_of(head: Head | type[Head]) -> ExportedForm:
    """Return the export of a head's task; UserError if the task cannot be exported."""
    if not head.task.exported:
        raise UserError(f"models of the task {head.task.name} cannot be exported")
    form: ExportedForm = head.task.exported.load()
    return form


def exported_kind(head: Head | type[Head], nms: bool) -> str:
    """Return the kind of output, without or with --nms; UserError if the task refuses --nms."""
    if nms and (reason := head.task.refused.get("nms")):
        raise UserError(f"--nms: {reason}; leave it out")
    return form_of(head).kinds[nms]


def _boxes(head: Head, kind: str, outputs: Outputs, confidence_threshold: float) -> np.ndarray:
    (rows,) = outputs
    if kind == DETECTIONS:
        rows = rows_of_detections(rows, head.num_classes)
    return rows[rows[:, BOX_CHANNELS] > confidence_threshold]


def _masks(head: Head, kind: str, outputs: Outputs, confidence_threshold: float) -> MaskRows:
    rows, prototypes = outputs
    _require_finite(rows, prototypes)
    if kind == MASKS:
        if len(rows) > MOST_MASKS:
            raise UserError(
                f"it returns {len(rows):,} masks per image; accepted: at most {MOST_MASKS:,}; "
                "export it with a smaller --topk-all, or without --nms"
            )
        rows, prototypes = rows_of_masks(rows, prototypes, head.num_classes)
    return MaskRows(rows[rows[:, BOX_CHANNELS] > confidence_threshold], prototypes)


def _scores(head: Head, kind: str, outputs: Outputs, confidence_threshold: float) -> np.ndarray:
    (logits,) = outputs
    _require_finite(logits)
    return probabilities(logits)[None]


def probabilities(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max())
    return np.asarray(powers / powers.sum())


def _require_finite(*outputs: np.ndarray) -> None:
    if not all(np.isfinite(output).all() for output in outputs):
        raise UserError("its outputs are not finite (NaN or infinite); export it again")


ANCHOR_BOXES = ExportedForm(
    (ROWS, DETECTIONS),
    lambda head, raw: (head.decode(raw),),
    _boxes,
    lambda kind, classes: kind(classes, ((1.0, 1.0),), in_channels=(), strides=(1,)),
)
ANCHOR_FREE_BOXES = ANCHOR_BOXES._replace(head=lambda kind, classes: kind(classes, (1,), (1,)))
MASKED_BOXES = ExportedForm(
    (MASK_ROWS, MASKS),
    lambda head, raw: (head.decode(raw), raw[-1]),
    _masks,
    lambda kind, classes: kind(classes, ((1.0, 1.0),), 1, 1, in_channels=(1,), strides=(1,)),
)
CLASS_LOGITS = ExportedForm(
    (LOGITS,),
    lambda head, raw: tuple(raw),
    _scores,
    lambda kind, classes: kind(classes, in_channels=1, stride=1),
)


def rows_of_detections(detections: np.ndarray, num_classes: int) -> np.ndarray:
    """Convert (K, 6) x1, y1, x2, y2, score, class to rows (K, 5 + C) as a model returns.

    Class scores are 1, so that NMS keeps the boxes again. Unused rows are omitted.
    """
    used = detections[detections[:, 4] > 0]
    classes = used[:, 5]
    wrong = ~((classes >= 0) & (classes < num_classes))
    if wrong.any():
        raise UserError(
            f"it returns the class {brief(float(classes[wrong][0]))}, but its metadata has "
            f"{count(num_classes, 'class', 'classes')}; export it again"
        )
    rows = np.zeros((len(used), 5 + num_classes), np.float32)
    rows[:, 0:2] = (used[:, 0:2] + used[:, 2:4]) / 2
    rows[:, 2:4] = used[:, 2:4] - used[:, 0:2]
    rows[:, 4] = used[:, 4]
    rows[np.arange(len(rows)), 5 + classes.astype(int)] = 1
    return rows


def rows_of_masks(
    detections: np.ndarray, masks: np.ndarray, num_classes: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return rows (K, 5 + C + K) and prototypes (K, h, w): each mask is its own prototype.

    Of detections (K, 6) as for `rows_of_detections`, and mask probabilities (K, h, w) float32.
    """
    rows = rows_of_detections(detections, num_classes)
    used = masks[detections[:, 4] > 0]
    scores = np.stack([extended(mask) for mask in used]) if len(used) else used
    scores = np.clip(scores, CERTAIN, 1 - CERTAIN)
    own = np.eye(len(rows), dtype=np.float32)
    return np.concatenate((rows, own), axis=1), np.log(scores / (1 - scores))


def extended(mask: np.ndarray) -> np.ndarray:
    """Return a mask (h, w) whose cells outside its box copy the nearest cell inside.

    The head crops by the box again, in pixels; otherwise the border would be up to a cell early.
    """
    places = [np.flatnonzero(mask.any(axis=axis)) for axis in (1, 0)]
    if not len(places[0]):
        return mask
    rows, columns = (
        np.arange(side).clip(inside[0], inside[-1])
        for side, inside in zip(mask.shape, places, strict=True)
    )
    return mask[rows[:, None], columns]
