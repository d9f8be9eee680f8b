"""Prototypes: the finest feature map -> maps that the masks of an image are mixed of.

Before: `head.py`. After: `cost.py` in training, `utils/masks/assemble.py` in validation. Source:
Bolya et al. 2019, YOLACT, arXiv:1904.02689; the layers by the names and shapes of public weights.
"""

from __future__ import annotations

from backend import nn, ops
from backend.contract import Tensor
from models.blocks.conv import Conv
from models.registry import Cost


class Protonet(nn.Module):
    """Two 3x3 convolutions, the map twice as large between them, and a 1x1 one."""

    def __init__(self, in_channels: int, channels: int, num_masks: int) -> None:
        super().__init__()
        self.cv1 = Conv(in_channels, channels, 3)
        self.cv2 = Conv(channels, channels, 3)
        self.cv3 = Conv(channels, num_masks)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, in, H, W) to prototypes (B, M, 2H, 2W)."""
        return self.cv3(self.cv2(ops.upsample_nearest_2x(self.cv1(x))))

    @staticmethod
    def costs(
        stride: int, in_channels: int, channels: int, num_masks: int
    ) -> tuple[tuple[int, Cost], ...]:
        """Return what its layers take, each with the stride that it computes at."""
        fine = Conv.cost(channels, channels, 3) + Conv.cost(channels, num_masks)
        return (stride, Conv.cost(in_channels, channels, 3)), (stride // 2, fine)
