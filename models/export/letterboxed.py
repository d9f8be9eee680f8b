"""An image of any size -> the network's input, in the graph; and boxes back to its pixels.

The steps are those of `utils/data/image/letterbox.py`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from backend.onnx import ops
from backend.onnx.recording import Size, Tensor, apply, constant, sizes_tensor
from utils.data.image.letterbox import FILL

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
    resized = _interpolated(_averaged(pixels, original, fitted), fitted)
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


def _averaged(pixels: Tensor, original: Tensor, fitted: Tensor) -> Tensor:
    """Return (1, 3, h, w): area averages if the long side more than halves, else all pixels.

    Below half size interpolation would skip pixels. ONNX has no such average. A graph without
    branches computes both ways, one of them of an image without rows.
    """
    longest = [apply("ReduceMax", (size,), (1,), "int64") for size in (original, fitted)]
    aliases = apply("Less", (longest[1] * 2, longest[0]), (1,), "bool")
    rows = _if(aliases, original[0:1], _numbers(0))
    area = _slice(pixels, 1, _numbers(0), rows)
    for axis in (1, 2):
        length, wanted = original[axis - 1 : axis], fitted[axis - 1 : axis]
        area = _averaged_along(area, axis, length, wanted, aliases)
    plain = _slice(pixels, 1, rows, original[0:1])
    one_is_empty = [apply("Reshape", (x, _numbers(-1)), (UNKNOWN,), x.dtype) for x in (area, plain)]
    size = apply("Concat", (_numbers(1, 3), _if(aliases, fitted, original)), (4,), "int64", axis=0)
    return apply("Reshape", (ops.cat(one_is_empty), size), IMAGE_SHAPE, pixels.dtype)


def _averaged_along(
    pixels: Tensor, axis: int, length: Tensor, wanted: Tensor, is_needed: Tensor
) -> Tensor:
    """Return `wanted` averages of `length` pixels along an axis; none where not needed.

    The average between two places is the difference of the sums up to each of them.
    """
    factor = ops.cast(length, "float64") / ops.cast(wanted, "float64")
    shape = (3, UNKNOWN, UNKNOWN)
    sums = apply("CumSum", (pixels, _number(axis)), shape, "float32", exclusive=1)
    number = _if(is_needed, wanted + 1, _numbers(0))
    counted = apply("Squeeze", (number,), (), "int64")
    edges = apply("Range", (_number(0), counted, _number(1)), (UNKNOWN,), "int64")
    places = ops.cast(edges, "float64") * factor
    index = apply("Min", (ops.cast(places, "int64"), length - 1), (UNKNOWN,), "int64")
    fraction = ops.cast(places - ops.cast(index, "float64"), "float32")
    if axis == 1:
        fraction = apply("Unsqueeze", (fraction, _numbers(1)), (UNKNOWN, 1), "float32")
    before, at = (apply("Gather", (x, index), shape, "float32", axis=axis) for x in (sums, pixels))
    up_to = before + at * fraction
    highs = _slice(up_to, axis, _numbers(1), number)
    lows = _slice(up_to, axis, _numbers(0), number - 1)
    return (highs - lows) / ops.cast(factor, "float32")


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


def _if(condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return apply("Where", (condition, x, y), x.shape, x.dtype)


def _slice(x: Tensor, axis: int, start: Tensor, end: Tensor) -> Tensor:
    shape = [UNKNOWN if dim == axis else side for dim, side in enumerate(x.shape)]
    return apply("Slice", (x, start, end, _numbers(axis)), shape, x.dtype)


def _number(value: int) -> Tensor:
    return constant(np.array(value, np.int64))


def _numbers(*values: int) -> Tensor:
    return constant(np.array(values, np.int64))
