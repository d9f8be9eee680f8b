"""The anchor head: feature maps -> raw maps per level -> decoded boxes.

Before: the layers of `graph.py`. After: `assign.py` and `loss.py` in training,
`utils/evaluation/nms.py` in validation. Source: the public YOLOv5 v6 head.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from backend import nn, ops
from backend.contract import Tensor
from models.registry import BuiltLayer, LayerRequest, register
from utils.errors import UserError

BOX_CHANNELS = 4
PRIOR_OBJECTS_PER_IMAGE = 8  # at 640 px, for the initial objectness bias
SCORE_ROUNDING = 1e-6  # more than a float32 sigmoid can be wrong by
PRIOR_CLASS_SCORE = 0.6  # shared by all classes, for the initial class bias


@register("Detect", joins=True)
class AnchorHead(nn.Module):
    """A 1x1 convolution per level that predicts A boxes a cell.

    Attributes:
        anchors: buffer (levels, A, 2), width and height in cells of the level.
        strides: pixels a cell, per level.
    """

    def __init__(
        self,
        num_classes: int,
        anchors: Sequence[Sequence[float]],
        in_channels: Sequence[int],
        strides: Sequence[int],
    ) -> None:
        super().__init__()
        self.num_classes = num_classes
        self.strides = tuple(strides)
        self.num_outputs = BOX_CHANNELS + 1 + num_classes
        self.num_anchors = len(anchors[0]) // 2
        nn.register_buffer(self, "anchors", anchors_in_cells(anchors, strides))
        self.m = nn.ModuleList(
            [
                nn.Conv2d(channels, self.num_anchors * self.num_outputs, 1)
                for channels in in_channels
            ]
        )

    def forward(self, *maps: Tensor) -> tuple[Tensor, ...]:
        """(B, C_i, H_i, W_i) each -> raw maps (B, A, H_i, W_i, 5 + C), logits throughout."""
        raw = []
        for convolution, feature in zip(self.m, maps, strict=True):
            x = convolution(feature)
            batch, _, height, width = x.shape
            x = x.reshape(batch, self.num_anchors, self.num_outputs, height, width)
            raw.append(x.permute(0, 1, 3, 4, 2))
        return tuple(raw)

    def decode(self, raw: Sequence[Tensor]) -> Tensor:
        """Raw maps -> (B, N, 5 + C): cx, cy, w, h in pixels, objectness and class scores."""
        levels = []
        for index, (level, stride) in enumerate(zip(raw, self.strides, strict=True)):
            batch, anchors, height, width, outputs = level.shape
            dtype, device = ops.dtype_of(level), ops.device_of(level)
            cells = ops.tensor(grid_cells(height, width, dtype), device)
            sizes = self.anchors[index].reshape(1, anchors, 1, 1, 2)
            decoded = decode_logits(level, cells, sizes, stride)
            levels.append(decoded.reshape(batch, anchors * height * width, outputs))
        return ops.cat(levels, dim=1)

    def decode_above(self, raw: Sequence[Tensor], confidence_threshold: float) -> list[np.ndarray]:
        """The rows of `decode` that can become detections, as arrays, one (K, 5 + C) an image.

        These are all whose objectness is above the threshold; a few just below are among them.
        With trained weights and 0.001 it is one row of ten: decoding and fetching every row took
        ten times as long.
        """
        lowest = logit(confidence_threshold - SCORE_ROUNDING)
        levels = [self._rows_above(level, logits, lowest) for level, logits in enumerate(raw)]
        return [np.concatenate(image) for image in zip(*levels, strict=True)]

    def _rows_above(self, level: int, logits: Tensor, lowest: float) -> list[np.ndarray]:
        """The decoded rows of a level, image by image, whose objectness logit is above lowest."""
        dtype, device = ops.dtype_of(logits), ops.device_of(logits)
        above = logits[..., BOX_CHANNELS] > lowest
        image, anchor, row, column = np.nonzero(ops.to_numpy(above))
        cells = ops.tensor(np.stack((column, row), axis=-1).astype(dtype), device)
        sizes = ops.take_rows(self.anchors[level], ops.tensor(anchor, device))
        found = ops.take_where(logits, above)
        decoded = ops.to_numpy(decode_logits(found, cells, sizes, self.strides[level]))
        return np.split(decoded, np.searchsorted(image, np.arange(1, logits.shape[0])))

    def initial_bias(self, level: int) -> np.ndarray:
        """What is added to the bias of a level so that first scores meet the expected rate.

        Returns:
            (A * (5 + C),) float32. Source: Lin et al. 2017, arXiv:1708.02002, section 3.3.
        """
        cells = (640 / self.strides[level]) ** 2
        bias = np.zeros((self.num_anchors, self.num_outputs), np.float32)
        bias[:, BOX_CHANNELS] = math.log(PRIOR_OBJECTS_PER_IMAGE / cells)
        bias[:, BOX_CHANNELS + 1 :] = math.log(
            PRIOR_CLASS_SCORE / (self.num_classes - 0.99999)  # 1 class: certain, yet finite
        )
        return bias.reshape(-1)

    @classmethod
    def build(cls, request: LayerRequest) -> BuiltLayer:
        """From YAML args [nc, anchors]."""
        if len(request.args) != 2 or not isinstance(request.args[1], tuple):
            raise UserError("accepted args: [nc, anchors]")
        num_classes, anchors = request.args
        if len(anchors) != len(request.in_channels):
            raise UserError(f"{len(anchors)} levels of anchors, {len(request.in_channels)} sources")
        head = cls(num_classes, anchors, request.in_channels, request.in_strides)
        return BuiltLayer(head, head.num_anchors * head.num_outputs, max(request.in_strides))


def anchors_in_cells(anchors: Sequence[Sequence[float]], strides: Sequence[int]) -> np.ndarray:
    """Anchors in pixels, [w, h, w, h, ...] a level -> (levels, A, 2) float32 in cells."""
    pixels = np.asarray(anchors, np.float32).reshape(len(anchors), -1, 2)
    return pixels / np.asarray(strides, np.float32).reshape(-1, 1, 1)


def grid_cells(height: int, width: int, dtype: str) -> np.ndarray:
    """Column and row of each cell, (1, 1, H, W, 2)."""
    rows, columns = np.meshgrid(np.arange(height), np.arange(width), indexing="ij")
    return np.stack([columns, rows], axis=-1)[None, None].astype(dtype)


def decode_logits(logits: Tensor, cells: Tensor, anchors: Tensor, stride: int) -> Tensor:
    """(..., 5 + C) of one level, with their cells and anchors (..., 2), to pixels and scores."""
    scores = ops.sigmoid(logits)
    centres = decode_centres(scores[..., 0:2]) + cells
    sizes = decode_sizes(scores[..., 2:4], anchors)
    return ops.cat([centres * stride, sizes * stride, scores[..., 4:]], dim=logits.ndim - 1)


def logit(score: float) -> float:
    """The inverse of the sigmoid: minus infinity from 0 down."""
    return math.log(score / (1 - score)) if score > 0 else -math.inf


def decode_centres(scores: Tensor) -> Tensor:
    """Sigmoids in (0, 1) -> centre offsets from the cell's corner in (-0.5, 1.5) cells."""
    return scores * 2.0 - 0.5


def decode_sizes(scores: Tensor, anchors: Tensor) -> Tensor:
    """Sigmoids in (0, 1) -> sizes of up to 4 times the anchor, in the anchor's unit."""
    return (scores * 2.0) ** 2.0 * anchors
