"""Images as bytes -> a tensor on the device, in the layout that the device gains from."""

from __future__ import annotations

import numpy as np

from duet import backend
from duet.backend import ops
from duet.backend.checks import CPU
from duet.backend.contract import Tensor


def images_to_tensor(
    images: np.ndarray, device: str, dtype: str = "float32", channels_last: bool | None = None
) -> Tensor:
    """Map (B, 3, H, W) uint8 to float tensor of the same shape in [0, 1].

    The layers keep the layout of their images; None chooses the one that the device gains from.
    """
    if channels_last is None:
        channels_last = gains_from_channels_last(device, dtype)
    pixels = images.transpose(0, 2, 3, 1)
    if channels_last and pixels.flags.c_contiguous:  # as `np.stack` leaves decoded images
        return ops.normalize_images(ops.tensor(pixels, device).permute(0, 3, 1, 2), dtype, True)
    return ops.normalize_images(ops.tensor(images, device), dtype, channels_last)


def gains_from_channels_last(device: str, dtype: str) -> bool:
    """Return whether convolutions of a dtype are known to be faster in that layout on a device.

    All but float64 on a CPU, by benchmarks/train_step.py; half precision on a GPU, whose matrix
    units read channels side by side.
    """
    if not backend.device.supports("channels_last"):
        return False
    return dtype != "float64" if device == CPU else dtype in ("bfloat16", "float16")
