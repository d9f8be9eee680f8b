"""The loss of boxes and masks: raw maps, prototypes and the assignment -> `LossTerms`.

Before: `head.py` (raw maps and prototypes). After: the training step.
Source: the public YOLOv5 recipe, by its stored results.
"""

from __future__ import annotations

from collections.abc import Sequence

from backend import ops
from backend.contract import Tensor
from models.heads.anchor.loss import DetectionLoss, part_of
from models.heads.base import LossTerms, WholeBatch
from models.heads.mask.cost import cost_of_masks
from models.heads.mask.positives import pieces_of
from models.heads.parts import loss_dtype
from utils.data.loading.batch import Targets


class SegmentationLoss(DetectionLoss):
    """The loss of boxes, and the cross-entropy of masks inside the boxes of their objects.

    The masks of an image and level are averaged, then the images; the levels add up. The term has
    the gain of the box loss. It is never compiled: its pieces have as many shapes as objects.
    """

    def __call__(
        self, raw: Sequence[Tensor], targets: Targets, whole: WholeBatch | None = None
    ) -> LossTerms:
        """Return the cost of a batch, or of a piece of it.

        Args:
            raw: per level (B, A, H, W, 5 + C + M), then prototypes (B, M, h, w).
            targets: of the same images, with masks; may be empty; then only objectness counts.
            whole: of which they are a piece; None for all of it.
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
