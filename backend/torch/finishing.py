"""Colours, flips and precision of training images in one compiled function; see `contract.Fused`.

The arithmetic is that of OpenCV's conversions of 8 bits, as measured over all colours: to HSV in
integers, with 12 bits after the point, and back in float32.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._triton import has_triton

from duet.backend import checks, modules
from duet.backend.checks import CPU
from duet.backend.torch import ops

HUES, LEVELS, BITS = 180, 256, 12
SECTORS = 6
CONSTANTS = "divisors", "wheel", "levels"
FULL, LOW, FALLING, RISING = range(4)
# Red, green and blue in each sector of the colour wheel.
WHEEL = [
    [FULL, FALLING, LOW, LOW, RISING, FULL],
    [RISING, FULL, FULL, FALLING, LOW, LOW],
    [LOW, LOW, RISING, FULL, FULL, FALLING],
]


def finish_problem(device: str) -> str | None:
    if device == CPU:
        return "OpenCV is faster on a CPU"
    return None if has_triton() else "Triton is not installed"


def finish_images(
    images: Tensor, tables: Tensor, changes: Tensor, dtype: str, channels_last: bool = False
) -> Tensor:
    checks.image_batch(images.shape, ops.dtype_of(images))
    checks.finishing(images.shape, tables.shape, changes.shape)
    if len(images) == 0:
        return ops.normalize_images(images, dtype, channels_last)
    device = ops.device_of(images)
    constants = [_constant(name, device, dtype) for name in CONSTANTS]
    inputs = images, tables * _constant("scales", device, dtype), changes
    run: Callable[..., Tensor] = _finished if device == CPU else _compiled()
    if device != CPU and len(images) > 1:  # the last batch may be smaller
        for x in inputs:
            torch._dynamo.mark_dynamic(x, 0)
    with modules.warnings_ignored():  # the compiler itself uses deprecated functions
        return run(*inputs, *constants, channels_last)


@functools.cache
def _compiled() -> Callable[..., Any]:
    return torch.compile(_finished)


@functools.cache
def _constant(name: str, device: str, dtype: str) -> Tensor:
    """Return what a byte is divided by or becomes: the same tensor each time."""
    byte = np.arange(1, LEVELS)
    if name == "divisors":  # of a hue and of a saturation, (2, 256) int32
        turns = np.rint((HUES << BITS) / (SECTORS * byte)), np.rint((255 << BITS) / byte)
        table = np.pad(turns, ((0, 0), (1, 0))).astype(np.int64)
        return ops.tensor(table, device).to(torch.int32)
    if name == "wheel":
        return ops.tensor(np.array(WHEEL), device)
    if name == "scales":  # (3, 1) float32
        sector, whole = np.float32(SECTORS) / np.float32(HUES), np.float32(1 / 255)
        return ops.tensor(np.array([[sector], [whole], [whole]]), device)
    grey = ops.tensor(np.arange(LEVELS, dtype=np.uint8)[None, None, None], device)
    return ops.normalize_images(grey, dtype).flatten()


def _finished(
    images: Tensor,
    tables: Tensor,
    changes: Tensor,
    divisors: Tensor,
    wheel: Tensor,
    levels: Tensor,
    channels_last: bool,
) -> Tensor:
    """Return finished images; tables are in sectors for hues, else in fractions, float32."""
    up_down, left_right, coloured = changes[:, :, None, None, None].unbind(1)
    images = torch.where(up_down, images.flip(2), images)
    pixels = torch.where(left_right, images.flip(3), images).to(torch.int32)
    image = torch.arange(len(pixels), device=pixels.device)[:, None, None, None]
    hue, saturation, value = (
        tables[image, channel, x] for channel, x in enumerate(_to_hsv(pixels, divisors))
    )
    found = levels[torch.where(coloured, _to_rgb(hue, saturation, value, wheel), pixels)]
    layout = torch.channels_last if channels_last else torch.contiguous_format
    return found.contiguous(memory_format=layout)


def _to_hsv(pixels: Tensor, divisors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Map (B, 3, H, W) RGB to hue, saturation and value, (B, 1, H, W) int32."""
    red, green, blue = pixels.split(1, 1)
    value = torch.maximum(torch.maximum(red, green), blue)
    spread = value - torch.minimum(torch.minimum(red, green), blue)
    half = 1 << (BITS - 1)
    saturation = (spread * divisors[1][value] + half) >> BITS
    turned = torch.where(value == green, blue - red + 2 * spread, red - green + 4 * spread)
    turned = torch.where(value == red, green - blue, turned)
    hue = (turned * divisors[0][spread] + half) >> BITS
    return torch.where(hue < 0, hue + HUES, hue), saturation, value


def _to_rgb(hue: Tensor, saturation: Tensor, value: Tensor, wheel: Tensor) -> Tensor:
    """Map hue in sectors, and fractions, (B, 1, H, W) each, to (B, 3, H, W) bytes, int32."""
    sector = hue.floor()
    part = hue - sector
    channel = torch.arange(3, device=hue.device)[:, None, None]
    shade = wheel[channel, sector.to(torch.int32)]
    lost = torch.where(shade == RISING, 1 - part, torch.where(shade == FALLING, part, 1.0))
    kept = torch.where(shade == FULL, 1.0, 1 - saturation * lost)
    return (value * kept * 255).to(torch.int32)  # truncated, as OpenCV does
