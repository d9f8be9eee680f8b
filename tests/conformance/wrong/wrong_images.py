"""Mistakes in the `ops` of images."""

from __future__ import annotations

from typing import Any

from tests.conformance.judging import Backend
from tests.conformance.wrong.registry import register


def from_corners(b: Backend) -> Any:
    """Take the pixel whose corner is nearest, not its centre."""

    def resize_bilinear(x: Any, height: int, width: int) -> Any:
        rows = [row * x.shape[2] // height for row in range(height)]
        columns = [column * x.shape[3] // width for column in range(width)]
        x = b.ops.stack([x[:, :, row] for row in rows], 2)
        return b.ops.stack([x[..., column] for column in columns], 3)

    return resize_bilinear


def clamped_sizes(b: Backend) -> Any:
    return lambda x, height, width: b.ops.resize_bilinear(x, max(height, 1), max(width, 1))


def padded_on_the_left(b: Backend) -> Any:
    def pad_to(x: Any, height: int, width: int, value: float) -> Any:
        padded = b.ops.pad_to(x, height, x.shape[3], value)
        padded = b.ops.pad_to(b.ops.flip_columns(padded), height, width, value)
        return b.ops.flip_columns(padded)

    return pad_to


register(
    (
        ("ops.resize_bilinear", "takes the nearest pixel", from_corners),
        ("ops.resize_bilinear", "takes any size", clamped_sizes),
        ("ops.flip_columns", "flips nothing", lambda b: lambda x: x),
        ("ops.pad_to", "pads on the left", padded_on_the_left),
        (
            "ops.pad_to",
            "pads with zeros",
            lambda b: lambda x, height, width, value: b.ops.pad_to(x, height, width, 0.0),
        ),
        (
            "ops.channels_last",
            "moves the channels",
            lambda b: lambda x: x.permute(0, 2, 3, 1),
        ),
    )
)
