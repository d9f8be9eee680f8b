"""Loss of boxes and masks: raw maps, prototypes and the assignment to `LossTerms`.

Masks have a value for every cell of the image, and autograd would keep several such maps per
positive until the backward pass: gigabytes for crowded images. Here the gradient is computed in
closed form, and pieces are freed once their cost and gradient are added.

Source: the public YOLOv5 recipe, checked against its stored results.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from duet.backend import ops
from duet.backend.checks import CPU
from duet.backend.contract import Tensor
from duet.models.heads.anchor.assign import Assignment
from duet.models.heads.anchor.loss import DetectionLoss, loss_dtype, part_of
from duet.models.heads.base import LossTerms, WholeBatch
from duet.utils.boxes import cxcywh_to_xyxy
from duet.utils.data.loading.batch import TargetMasks, Targets

# Values per piece on a GPU: masks times cells of their window, unless a single object has more.
MOST_NUMBERS = 2**22


class SegmentationLoss(DetectionLoss):
    """Box losses, and the cross-entropy of masks inside their objects' boxes.

    Masks are averaged per image and level, then over images, and summed over levels. The term uses
    the box gain. It is never compiled: its pieces have as many shapes as objects.
    """

    def __call__(
        self, raw: Sequence[Tensor], targets: Targets, whole: WholeBatch | None = None
    ) -> LossTerms:
        """Return the loss of a batch or of a piece of it.

        Args:
            raw: per level (B, A, H, W, 5 + C + M), then prototypes (B, M, h, w).
            targets: targets with masks of the same images; if empty, only objectness counts.
            whole: the batch that this is a piece of; None if it is the whole batch.
        """
        *levels, prototypes = raw
        prototypes = ops.cast(prototypes, loss_dtype(prototypes))
        boxes = self.cost_of_boxes(levels, targets, whole)
        images, _, height, width = prototypes.shape
        pieces = pieces_of(boxes.assignments, targets, (height, width), ops.device_of(prototypes))
        cost = cost_of_masks(ops.cat(boxes.added), prototypes, pieces) / max(images, 1)
        mask = part_of(cost, boxes.parts and boxes.parts.images) * self.gains.box
        total = boxes.terms.total + mask * (boxes.parts.total if boxes.parts else images)
        losses = {**boxes.terms.by_name, "mask": mask}
        names = ("box", "mask", "objectness", "classification")
        return LossTerms({name: losses[name] for name in names}, total)


def cost_of_masks(coefficients: Tensor, prototypes: Tensor, masks: MaskPieces) -> Tensor:
    """Return the weighted sum of cross-entropies over all cells of all masks, 0-d.

    With logits z = coefficients @ prototypes, truth y and weights w, the gradient w.r.t. z is
    w * (sigmoid(z) - y). The result has the value of the cost and is linear in coefficients and
    prototypes, with their gradients as factors.

    Args:
        coefficients: (P, M) for the positives of all levels.
        prototypes: (B, M, h, w).
    """
    taken = ops.take_rows(coefficients, ops.tensor(masks.order, ops.device_of(prototypes)))
    has_gradient = taken.requires_grad or prototypes.requires_grad
    cost = _Cost(taken.detach(), prototypes.detach(), masks, has_gradient)
    for piece in masks.pieces:
        cost.add(piece)
    value = ops.sum(ops.cat(cost.by_mask) * cost.weights)
    if not has_gradient:
        return value
    # Even without masks: all ranks must average gradients of the same parameters.
    by_row = ops.cat(cost.by_row) * cost.weights.reshape(-1, 1)
    linear = ops.sum(taken * by_row) + ops.sum(prototypes * cost.by_prototype)
    return value + (linear - linear.detach())


class _Cost:
    """Accumulated cost of the pieces.

    Attributes:
        by_mask: unweighted costs (K,) of each piece's masks.
        by_row: their gradients (K, M) w.r.t. the coefficients.
        by_prototype: gradient (B, M, h, w) of the weighted sum w.r.t. the prototypes.
    """

    def __init__(
        self, coefficients: Tensor, prototypes: Tensor, masks: MaskPieces, has_gradient: bool
    ) -> None:
        self._dtype, device = ops.dtype_of(prototypes), ops.device_of(prototypes)
        self.weights = ops.tensor(masks.weights.astype(self._dtype), device)
        self._coefficients, self._prototypes = coefficients, prototypes
        self._weighted = coefficients * self.weights.reshape(-1, 1)
        self._which, self._cells = ops.tensor(masks.which, device), ops.tensor(masks.cells, device)
        self._cells_before = 0
        self.by_mask = [ops.zeros((0,), self._dtype, device)]
        self.by_row = [ops.zeros((0, coefficients.shape[1]), self._dtype, device)]
        shape = prototypes.shape if has_gradient else (0,)
        self.by_prototype = ops.zeros(shape, self._dtype, device)
        self._has_gradient = has_gradient

    def add(self, piece: Piece) -> None:
        top, left, bottom, right = piece.window
        place = piece.image, slice(None), slice(top, bottom), slice(left, right)
        basis = self._prototypes[place]
        shape = basis.shape
        basis = basis.reshape(shape[0], piece.window.cells)
        logits = ops.matmul(self._coefficients[piece.rows], basis)
        is_there, is_box = self._next_cells(piece)
        self.by_mask.append(ops.sum(ops.bce_terms(logits, is_there) * is_box, 1))
        if self._has_gradient:
            slope = (ops.sigmoid(logits) - is_there) * is_box
            self.by_row.append(ops.matmul(slope, basis.permute(1, 0)))
            by_basis = ops.matmul(self._weighted[piece.rows].permute(1, 0), slope)
            ops.add_at_(self.by_prototype, place, by_basis.reshape(*shape))

    def _next_cells(self, piece: Piece) -> tuple[Tensor, Tensor]:
        """Return (K, cells) twice: 1 inside the piece's objects, and inside their boxes."""
        objects, cells = len(piece.objects), piece.window.cells
        start, self._cells_before = self._cells_before, self._cells_before + objects * cells
        of_objects = ops.cast(self._cells[:, start : self._cells_before], self._dtype)
        which = self._which[piece.rows]
        is_there, is_box = (
            ops.take_rows(of_objects[index].reshape(objects, cells), which) for index in range(2)
        )
        return is_there, is_box


class Window(NamedTuple):
    """A rectangle of cells in a map; bottom and right are exclusive."""

    top: int
    left: int
    bottom: int
    right: int

    @property
    def cells(self) -> int:
        return (self.bottom - self.top) * (self.right - self.left)

    def slices(self, top: int = 0, left: int = 0) -> tuple[slice, slice]:
        """Return its rows and columns in a map that starts at (top, left)."""
        rows = slice(self.top - top, self.bottom - top)
        return rows, slice(self.left - left, self.right - left)

    def around(self, other: Window) -> Window:
        """Return the smallest window containing both."""
        top, left = map(min, self[:2], other[:2])
        return Window(top, left, *map(max, self[2:], other[2:]))


class Piece(NamedTuple):
    """Positives of O objects in one image."""

    image: int
    rows: slice
    objects: tuple[int, ...]  # target indices
    window: Window  # covering all their boxes

    @property
    def numbers(self) -> int:
        return (self.rows.stop - self.rows.start) * self.window.cells


class MaskPieces(NamedTuple):
    """The K positives whose boxes contain a cell, in pieces."""

    pieces: Sequence[Piece]
    order: np.ndarray  # (K,) int64, index into the positives of all levels
    which: np.ndarray  # (K,) int64, index into the piece's objects
    weights: np.ndarray  # (K,) float64, per cell in the object's box
    # (2, N) uint8: O * cells values per piece, 1 inside the object, and inside its box.
    cells: np.ndarray


def pieces_of(
    assignments: Sequence[Assignment], targets: Targets, size: tuple[int, int], device: str
) -> MaskPieces:
    """Return all positives, ordered by piece.

    A positive's weight is 1 / (positives of its image and level) / (area of its box). On a CPU each
    object is a piece, to save the cells of joint windows outside boxes; a GPU computes many objects
    in the time of one.

    Args:
        targets: with masks in maps of any size; masks may be missing without positives.
        size: (height, width) of the prototypes.
    """
    target = np.concatenate([level.target_index for level in assignments])
    if not len(target):
        return MaskPieces((), target, target, np.zeros(0), np.zeros((2, 0), np.uint8))
    assert targets.masks is not None, "objects without masks"
    windows = box_windows(targets.boxes_cxcywh_norm, size)
    image = targets.image_index[target]
    order = np.lexsort((target, windows[target, 0], image))
    order = order[np.all(windows[:, 2:] > windows[:, :2], axis=1)[target[order]]]
    areas = targets.boxes_cxcywh_norm[:, 2:].astype(np.float64).prod(axis=1) * np.prod(size)
    weights = np.concatenate([1 / _in_its_image(level) for level in assignments]) / areas[target]
    target = target[order]
    pieces = _join(image[order], target, windows, 0 if device == CPU else MOST_NUMBERS)
    cells = _cells(pieces, windows, resized(targets.masks, size))
    return MaskPieces(pieces, order, _which(pieces, target), weights[order], cells)


def box_windows(boxes_cxcywh_norm: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Return the cells whose corner is in each box, (T, 4) int64, as `Window`; may be empty."""
    height, width = size
    edges = cxcywh_to_xyxy(boxes_cxcywh_norm * np.array([width, height, width, height], np.float32))
    edges = np.clip(np.ceil(edges), 0, [width, height, width, height])
    return edges[:, [1, 0, 3, 2]].astype(np.int64)


def resized(masks: TargetMasks, size: tuple[int, int]) -> TargetMasks:
    """Resize masks; each cell takes the value at its top left."""
    height, width = masks.maps.shape[1:]
    if (height, width) == size:
        return masks
    rows = np.arange(size[0]) * height // size[0]
    maps = masks.maps[:, rows[:, None], np.arange(size[1]) * width // size[1]]
    return masks._replace(maps=maps)


def _in_its_image(level: Assignment) -> np.ndarray:
    """Return, per positive, the number of positives in its image at the level, (P,)."""
    return np.bincount(level.image_index)[level.image_index]


def _join(
    image: np.ndarray, target: np.ndarray, windows: np.ndarray, most_numbers: int
) -> list[Piece]:
    """Join objects of an image into pieces; their positives are contiguous."""
    pieces: list[Piece] = []
    starts = np.flatnonzero(np.diff(target, prepend=-1)).tolist()
    ends = (np.flatnonzero(np.diff(target, append=-1)) + 1).tolist()
    for start, end in zip(starts, ends, strict=True):
        own = int(target[start])
        piece = Piece(int(image[start]), slice(start, end), (own,), Window(*windows[own].tolist()))
        joined = _joined(pieces[-1], piece) if pieces else piece
        if pieces and joined.image == piece.image and joined.numbers <= most_numbers:
            pieces[-1] = joined
        else:
            pieces.append(piece)
    return pieces


def _joined(piece: Piece, other: Piece) -> Piece:
    return Piece(
        piece.image,
        slice(piece.rows.start, other.rows.stop),
        piece.objects + other.objects,
        piece.window.around(other.window),
    )


def _which(pieces: Sequence[Piece], target: np.ndarray) -> np.ndarray:
    """Return each positive's object index within its piece, (K,) int64."""
    which = np.zeros_like(target)
    for piece in pieces:
        which[piece.rows] = np.cumsum(np.diff(target[piece.rows], prepend=piece.objects[0]) != 0)
    return which


def _cells(pieces: Sequence[Piece], windows: np.ndarray, masks: TargetMasks) -> np.ndarray:
    """Return `MaskPieces.cells`."""
    parts = [np.zeros((2, 0), np.uint8)]
    for piece in pieces:
        top, left, bottom, right = piece.window
        part = np.zeros((2, len(piece.objects), bottom - top, right - left), np.uint8)
        for place, index in enumerate(piece.objects):
            own = Window(*windows[index].tolist())
            values = masks.maps[masks.map_index[index]][own.slices()]
            rows, columns = own.slices(top, left)
            inside = part[:, place, rows, columns]
            inside[0], inside[1] = values == masks.value[index], 1
        parts.append(part.reshape(2, -1))
    return np.concatenate(parts, axis=1)
