"""IoU and its kin on the project's tensors, for figures and tutorials: what the papers define.

The CIoU is the project's own, `models/heads/anchor/boxes.py`; the other three are here alone.
Sources: GIoU, arXiv:1902.09630; DIoU and CIoU, arXiv:1911.08287.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from duet.backend import autograd, ops
from duet.backend.contract import Tensor
from duet.models.heads.anchor.boxes import complete_iou


class _Geometry(NamedTuple):
    """What two boxes share and span; (N,) each."""

    intersection: Tensor
    union: Tensor
    hull_width: Tensor
    hull_height: Tensor
    distance_squared: Tensor  # of the centres

    @property
    def iou(self) -> Tensor:
        return self.intersection / self.union


def _geometry(pred: Tensor, target: Tensor) -> _Geometry:
    shared, spanned = [], []
    for axis in (0, 1):
        half, target_half = pred[:, axis + 2] / 2, target[:, axis + 2] / 2
        low, high = pred[:, axis] - half, pred[:, axis] + half
        target_low, target_high = target[:, axis] - target_half, target[:, axis] + target_half
        overlap = ops.minimum(high, target_high) - ops.maximum(low, target_low)
        shared.append(ops.clamp(overlap, low=0.0))
        spanned.append(ops.maximum(high, target_high) - ops.minimum(low, target_low))
    intersection = shared[0] * shared[1]
    union = pred[:, 2] * pred[:, 3] + target[:, 2] * target[:, 3] - intersection
    distance = (pred[:, 0] - target[:, 0]) ** 2 + (pred[:, 1] - target[:, 1]) ** 2
    return _Geometry(intersection, union, spanned[0], spanned[1], distance)


def iou(pred: Tensor, target: Tensor) -> Tensor:
    """Return the IoU (N,) of boxes (N, 4) cxcywh, paired row by row."""
    return _geometry(pred, target).iou


def generalized_iou(pred: Tensor, target: Tensor) -> Tensor:
    """Return the GIoU: the IoU less the part of the hull that neither box covers."""
    found = _geometry(pred, target)
    hull = found.hull_width * found.hull_height
    return found.iou - (hull - found.union) / hull


def distance_iou(pred: Tensor, target: Tensor) -> Tensor:
    """Return the DIoU: the IoU less (distance of the centres / diagonal of the hull) squared."""
    found = _geometry(pred, target)
    return found.iou - found.distance_squared / (found.hull_width**2 + found.hull_height**2)


FAMILY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "IoU": iou, "GIoU": generalized_iou, "DIoU": distance_iou, "CIoU": complete_iou,
}  # fmt: skip


def values(pred: np.ndarray, target: np.ndarray) -> dict[str, np.ndarray]:
    """Return each measure (N,) of boxes (N, 4) cxcywh, paired row by row."""
    pair = [ops.tensor(boxes.astype(np.float32)) for boxes in (pred, target)]
    return {name: ops.to_numpy(measure(*pair)) for name, measure in FAMILY.items()}


def gradient(name: str, pred: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Return d (1 - measure) / d pred, (N, 4), of boxes (N, 4) cxcywh."""
    moving = autograd.variable(pred.astype(np.float32))
    loss = ops.sum(1 - FAMILY[name](moving, ops.tensor(target.astype(np.float32))))
    return ops.to_numpy(autograd.gradients(loss, [moving])[0])


def regression_cases(places: int) -> tuple[np.ndarray, np.ndarray]:
    """Return boxes and targets (343 * places, 4) cxcywh: the grid of arXiv:1911.08287, section 3.

    Targets of area 1 and seven aspect ratios at the origin; boxes of the same ratios and seven
    areas at random places up to 3 away.
    """
    angle, radius = np.random.default_rng(0).uniform(size=(2, places))
    angle, radius = 2 * np.pi * angle, 3 * np.sqrt(radius)
    x, y = radius * np.cos(angle), radius * np.sin(angle)
    ratios = np.array([1 / 4, 1 / 3, 1 / 2, 1, 2, 3, 4])
    areas = np.array([0.5, 0.67, 0.75, 1, 1.33, 1.5, 2])
    t, r, a, place = np.ix_(ratios, ratios, areas, np.arange(places))
    boxes = (x[place], y[place], np.sqrt(a * r), np.sqrt(a / r))
    targets = (np.zeros(1), np.zeros(1), np.sqrt(t), 1 / np.sqrt(t))
    shape = (len(ratios), len(ratios), len(areas), places)
    return tuple(
        np.stack([np.broadcast_to(side, shape).ravel() for side in row], axis=1)
        for row in (boxes, targets)
    )


def descend(name: str, start: np.ndarray, target: np.ndarray, steps: int) -> np.ndarray:
    """Return the boxes (steps + 1, N, 4) of a descent by 1 - measure, cxcywh.

    The rate is 0.1, for the last fifth 0.01, times 2 - IoU as in arXiv:1911.08287.
    """
    path = [start.astype(np.float32)]
    for step in range(steps):
        overlap = values(path[-1], target)["IoU"][:, None]
        rate = np.float32(0.1 if step < 0.8 * steps else 0.01)
        boxes = path[-1] - rate * (2 - overlap) * gradient(name, path[-1], target)
        boxes[:, 2:] = np.maximum(boxes[:, 2:], 1e-3)
        path.append(boxes)
    return np.stack(path)
