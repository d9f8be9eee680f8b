"""A model that computes in half precision, if the device has it.

Before: `predictor.py`, for --half; `models/training/loop.py`, which validates in the precision of
training. After: `augmented.py`, `ensemble.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import backend
from backend import amp, ops
from backend.checks import CPU
from backend.contract import Tensor
from models.detector import gains_from_channels_last
from models.inference.protocol import Predictor

HALF = "float16"


class HalfPrecision:
    """One model whose convolutions compute in half precision; its maps come back in float32.

    So boxes are decoded in float32, as NMS needs them.
    """

    def __init__(
        self, model: Predictor, device: str, dtype: str = HALF, channels_last: bool | None = None
    ) -> None:
        """Take a model of float32 weights on a device, and a dtype of `amp.supported`.

        channels_last: whether maps have that layout; None for the one that the device gains from.
        """
        if channels_last is None:
            channels_last = gains_from_channels_last(device, dtype)
        self.channels_last = channels_last
        self.model, self.device, self.dtype = model, device, dtype
        self.head, self.stride, self.fixed_size = model.head, model.stride, model.fixed_size
        self.takes_arrays = False

    def __call__(self, images: Tensor) -> tuple[Tensor, ...]:
        if self.channels_last:
            images = ops.channels_last(images)
        with amp.autocast(self.device, self.dtype):
            raw = self.model(images)
        return tuple(ops.cast(level, "float32") for level in raw)

    def decode_above(
        self, raw: tuple[Tensor, ...], confidence_threshold: float
    ) -> list[np.ndarray]:
        return self.model.decode_above(raw, confidence_threshold)

    def require_memory(self, shape: Sequence[int], trains: bool) -> None:
        self.model.require_memory(shape, trains)


def why_not_half(device: str) -> str:
    """Return why --half means float32 on a device; "" where it means half precision."""
    if device == CPU:
        return "a CPU detects in float32"
    if HALF not in amp.supported(device):
        return f"the {backend.use()} backend detects in float32"
    return ""
