"""What NMS and masks in an exported file found -> what the mask head decodes.

Before: `models/inference/exported.py` ran the file. After: `head.py` finishes it.
"""

from __future__ import annotations

import numpy as np

from models.heads.anchor.exported import rows_of_detections

CERTAIN = 1e-6  # away from 0 and 1, whose logits are infinite


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
