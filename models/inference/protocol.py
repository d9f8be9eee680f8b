"""The interface of a predictor, for code that only detects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from models.detector import images_to_tensor
from models.heads.base import Head


class Predictor(Protocol):
    """A model, as code that only detects uses it; `Detector` is one."""

    @property
    def head(self) -> Head:
        """The head whose task it is, and which finishes what it predicts."""

    @property
    def stride(self) -> int:
        """Pixels that image sides must be a multiple of."""

    @property
    def fixed_size(self) -> tuple[int, int] | None:
        """(height, width) that every image must have; None: any multiples of the stride."""

    @property
    def takes_arrays(self) -> bool:
        """Whether images come as NumPy arrays: the network is in no tensors of the backend."""

    def __call__(self, *inputs: Any) -> Any:
        """Queue the work on one tensor (B, 3, H, W) in [0, 1]; return what `decode_above` takes.

        If `takes_arrays`, it is an array (B, 3, H, W) uint8.
        """

    def decode_above(self, raw: Any, confidence_threshold: float) -> list[np.ndarray]:
        """Return of each image the rows that may count as found, as `Head.decode_above` does."""

    def require_memory(self, shape: Sequence[int], trains: bool) -> None:
        """Raise UserError if images (B, 3, H, W) take too much, as `Detector.require_memory`."""


def network_input(
    predictor: Predictor, images: np.ndarray, device: str, channels_last: bool | None = None
) -> Any:
    """Return images (B, 3, H, W) uint8 as a predictor takes them; the rest as `images_to_tensor`"""
    if predictor.takes_arrays:
        return images
    return images_to_tensor(images, device, channels_last=channels_last)
