"""Convert uint8 images to a tensor on the device, in its faster memory layout."""

from __future__ import annotations

import numpy as np

from duet import backend
from duet.backend import ops
from duet.backend.checks import CPU
from duet.backend.contract import Tensor


def images_to_tensor(
    images: np.ndarray, device: str, dtype: str = "float32", channels_last: bool | None = None
) -> Tensor:
    """Convert (B, 3, H, W) uint8 to a float tensor of the same shape in [0, 1].

    Layers keep the layout of their input; None selects the faster one for the device.
    """
    if channels_last is None:
        channels_last = gains_from_channels_last(device, dtype)
    pixels = images.transpose(0, 2, 3, 1)
    if channels_last and pixels.flags.c_contiguous:  # as `np.stack` leaves decoded images
        return ops.normalize_images(ops.tensor(pixels, device).permute(0, 3, 1, 2), dtype, True)
    return ops.normalize_images(ops.tensor(images, device), dtype, channels_last)


def gains_from_channels_last(device: str, dtype: str) -> bool:
    """Return whether convolutions in a dtype are known to be faster channels-last on a device.

    On a CPU all dtypes but float64, measured by benchmarks/train_step.py; on a GPU half precision,
    because tensor cores read adjacent channels.
    """
    if not backend.device.supports("channels_last"):
        return False
    return dtype != "float64" if device == CPU else dtype in ("bfloat16", "float16")
