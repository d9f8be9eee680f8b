"""What exported files return, by the name of a model's task, and how its head reads that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from duet.backend.contract import Tensor
from duet.models.heads.anchor.boxes import BOX_CHANNELS
from duet.models.heads.base import Head
from duet.models.heads.mask.head import MaskRows
from duet.utils.errors import UserError, brief
from duet.utils.export.metadata import (
    DETECTIONS,
    LOGITS,
    MASK_ROWS,
    MASKS,
    MOST_MASKS,
    ROWS,
    Outputs,
)
from duet.utils.text import count

CERTAIN = 1e-6  # away from 0 and 1, whose logits are infinite


class ExportedForm(NamedTuple):
    """How a task is exported.

    Attributes:
        kinds: what files return (`utils/export/metadata.py`): without NMS, and with --nms unless
            the task refuses it.
        outputs: returns what a file without NMS returns, (B, ...) each, of a head and raw outputs.
        rows: returns what `Head.decode_above` does for one image, of a head, a kind, a file's
            outputs (float32, without the batch) and the confidence threshold.
        head: makes a head that only finishes and scores, of its class and the number of classes.
    """

    kinds: tuple[str, ...]
    outputs: Callable[[Head, Sequence[Tensor]], tuple[Tensor, ...]]
    rows: Callable[[Head, str, Outputs, float], Any]
    head: Callable[[Any, int], Head]


def form_of(head: Head | type[Head]) -> ExportedForm:
    """Return how models with a head are exported; UserError for a task that is not."""
    name = head.task.name
    if name not in FORMS:
        raise UserError(f"models to {name} cannot be exported")
    return FORMS[name]


def exported_kind(head: Head | type[Head], nms: bool) -> str:
    """Return the kind of output, without or with --nms; UserError if the task refuses that."""
    if nms and (reason := head.task.refused.get("nms")):
        raise UserError(f"--nms: {reason}; leave it out")
    return form_of(head).kinds[nms]


def exported_outputs(head: Head, raw: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Return what an exported file without NMS returns of raw outputs, (B, ...) each."""
    return form_of(head).outputs(head, raw)


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
                f"it returns {len(rows):,} masks per image, and at most {MOST_MASKS:,} are "
                "read; export it with a smaller --topk-all, or without --nms"
            )
        rows, prototypes = rows_of_masks(rows, prototypes, head.num_classes)
    return MaskRows(rows[rows[:, BOX_CHANNELS] > confidence_threshold], prototypes)


def _scores(head: Head, kind: str, outputs: Outputs, confidence_threshold: float) -> np.ndarray:
    (logits,) = outputs
    _require_finite(logits)
    powers = np.exp(logits - logits.max())
    return np.asarray(powers / powers.sum())[None]


def _require_finite(*outputs: np.ndarray) -> None:
    if not all(np.isfinite(output).all() for output in outputs):
        raise UserError("its outputs are not finite (NaN or infinite); export it again")


FORMS: dict[str, ExportedForm] = {
    "detect": ExportedForm(
        (ROWS, DETECTIONS),
        lambda head, raw: (head.decode(raw),),
        _boxes,
        lambda kind, classes: kind(classes, ((1.0, 1.0),), in_channels=(), strides=(1,)),
    ),
    "detect-anchor-free": ExportedForm(
        (ROWS, DETECTIONS),
        lambda head, raw: (head.decode(raw),),
        _boxes,
        lambda kind, classes: kind(classes, (1,), (1,)),
    ),
    "segment": ExportedForm(
        (MASK_ROWS, MASKS),
        lambda head, raw: (head.decode(raw), raw[-1]),
        _masks,
        lambda kind, classes: kind(classes, ((1.0, 1.0),), 1, 1, in_channels=(1,), strides=(1,)),
    ),
    "classify": ExportedForm(
        (LOGITS,),
        lambda head, raw: tuple(raw),
        _scores,
        lambda kind, classes: kind(classes, in_channels=1, stride=1),
    ),
}


def rows_of_detections(detections: np.ndarray, num_classes: int) -> np.ndarray:
    """Map (K, 6) x1, y1, x2, y2, score, class to (K, 5 + C) as a model has them.

    They are what NMS kept, each sure of its class: NMS keeps them again. Unused rows are left out.

    Raises:
        UserError: a class that the model does not have.
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

    Args:
        detections: (K, 6) as `rows_of_detections` takes them.
        masks: (K, h, w) float32, how probable each place is the object's.

    Raises:
        UserError: a class that the model does not have.
    """
    rows = rows_of_detections(detections, num_classes)
    used = masks[detections[:, 4] > 0]
    scores = np.stack([extended(mask) for mask in used]) if len(used) else used
    scores = np.clip(scores, CERTAIN, 1 - CERTAIN)
    own = np.eye(len(rows), dtype=np.float32)
    return np.concatenate((rows, own), axis=1), np.log(scores / (1 - scores))


def extended(mask: np.ndarray) -> np.ndarray:
    """Return a mask (h, w) in which what its box leaves out is as the nearest place inside.

    The head cuts by the box again, in pixels; without this it would find the border too early, by
    up to one place.
    """
    places = [np.flatnonzero(mask.any(axis=axis)) for axis in (1, 0)]
    if not len(places[0]):
        return mask
    rows, columns = (
        np.arange(side).clip(inside[0], inside[-1])
        for side, inside in zip(mask.shape, places, strict=True)
    )
    return mask[rows[:, None], columns]
