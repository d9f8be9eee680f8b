"""An image of any size -> the network's input, in the graph; and boxes back to its pixels.

The steps are those of `utils/data/image/letterbox.py`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from duet.backend.onnx import ops
from duet.backend.onnx.recording import Size, Tensor, apply, constant, sizes_tensor
from duet.utils.data.image.letterbox import FILL

UNKNOWN = Size(0)  # a side that only the graph knows
IMAGE_SHAPE = 1, 3, UNKNOWN, UNKNOWN


class Placement(NamedTuple):
    """Where an image lies in the network's input: (4,) float32, in the order of x1, y1, x2, y2."""

    scale: Tensor  # from pixels of the image to those of the input
    offset: Tensor  # of the image in the input
    limits: Tensor  # width and height of the image


def letterboxed(image: Tensor, input_size: tuple[int, int]) -> tuple[Tensor, Placement]:
    """Return what the network takes of an image, (1, 3, H, W) float32 in [0, 1].

    Args:
        image: (h, w, 3) uint8 RGB.
        input_size: (H, W).
    """
    original, whole = sizes_tensor(image.shape[:2]), _numbers(*input_size)
    fitted = fitted_size(original, whole)
    before = apply("Div", (whole - fitted, _numbers(2)), (2,), "int64")
    pixels = ops.cast(image.permute(2, 0, 1), "float32")
    single = apply("Unsqueeze", (pixels, _numbers(0)), IMAGE_SHAPE, "float32")
    resized = _interpolated(single, fitted)
    padded = _padded(resized, before, whole - fitted - before, input_size)
    return padded / 255.0, _placement(original, fitted, before)


def rows_in_image(rows: Tensor, placement: Placement) -> Tensor:
    """Map the boxes of rows (B, N, 5 + C) to pixels of the image, not clipped."""
    is_place = constant(np.array([1, 1, 0, 0], np.float32))  # and not a size
    boxes_cxcywh = (rows[..., 0:4] - placement.offset * is_place) / placement.scale
    return ops.cat([boxes_cxcywh, rows[..., 4:]], dim=2)


def detections_in_image(detections: Tensor, placement: Placement) -> Tensor:
    """Map the boxes of detections (B, K, 6) as `boxes_in_image` does; unused rows stay 0."""
    boxes_xyxy = boxes_in_image(detections[..., 0:4], placement)
    return ops.cat([boxes_xyxy, detections[..., 4:]], dim=2)


def boxes_in_image(boxes_xyxy: Tensor, placement: Placement) -> Tensor:
    """Map boxes (B, K, 4) to pixels of the image, and clip them to it."""
    mapped = (boxes_xyxy - placement.offset) / placement.scale
    zero = constant(np.zeros((), np.float32))
    positive = apply("Max", (mapped, zero), mapped.shape, mapped.dtype)
    return apply("Min", (positive, placement.limits), mapped.shape, mapped.dtype)


def fitted_size(original: Tensor, whole: Tensor) -> Tensor:
    """Return the size (2,) int64 of an image in the input, rounded as by `fit_letterbox`."""
    sides = ops.cast(original, "float64")
    ratios = ops.cast(whole, "float64") / sides
    scale = apply("ReduceMin", (ratios,), (1,), "float64")
    rounded = apply("Round", (sides * scale,), (2,), "float64")
    return apply("Max", (ops.cast(rounded, "int64"), _numbers(1)), (2,), "int64")


def _placement(original: Tensor, fitted: Tensor, before: Tensor) -> Placement:
    scale = ops.cast(fitted, "float64") / ops.cast(original, "float64")
    order = _numbers(1, 0, 1, 0)
    numbers = (ops.cast(x, "float32") for x in (scale, before, original))
    return Placement(*(apply("Gather", (x, order), (4,), "float32") for x in numbers))


def _interpolated(images: Tensor, size: Tensor) -> Tensor:
    """Resize (1, 3, h, w) to a size (2,), to whole grey levels: halves go up, as in OpenCV."""
    sizes = apply("Concat", (_numbers(1, 3), size), (4,), "int64", axis=0)
    resized = apply("Resize", (images, None, None, sizes), IMAGE_SHAPE, "float32", mode="linear")
    return apply("Floor", (resized + 0.5,), resized.shape, "float32")


def _padded(images: Tensor, before: Tensor, after: Tensor, input_size: tuple[int, int]) -> Tensor:
    none = _numbers(0, 0)
    pads = apply("Concat", (none, before, none, after), (8,), "int64", axis=0)
    fill = constant(np.array(FILL, np.float32))
    padded = apply("Pad", (images, pads, fill), IMAGE_SHAPE, "float32")
    shape = (1, 3, *input_size)
    return apply("Reshape", (padded, _numbers(*shape)), shape, "float32")  # its sides are known now


def _numbers(*values: int) -> Tensor:
    return constant(np.array(values, np.int64))
