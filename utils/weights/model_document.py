"""A model YAML out of a foreign file, checked against its weights before it is built.

Before: `yolov5.py`. After: `models/graph.py`. A file of a few bytes could otherwise describe
a model that fills the memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from backend.words import count
from utils.errors import UserError

LARGEST_ARGUMENT = 32  # kernel sizes, strides, paddings, groups
BOX_OUTPUTS = 5  # cx, cy, w, h, objectness, before the classes
CHANNEL_MULTIPLE = 8  # to which widths are rounded up


def check_document(document: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Raise UserError if a description has more or wider layers than the arrays can come from."""
    widest = max((size for array in arrays.values() for size in array.shape), default=0)
    lines = _lines(document)
    depth = _multiple(document, "depth_multiple")
    width = _multiple(document, "width_multiple")
    repeats = 0.0
    for line in lines:
        _, number, block, args = line
        repeats += max(1.0, number * depth)
        channels = args[0] if args and type(args[0]) is int else 0
        too_wide = channels * width > widest + CHANNEL_MULTIPLE
        if too_wide or any(size > LARGEST_ARGUMENT for size in _integers(args[1:])):
            raise UserError(
                f"its description of a layer, {block!r:.40} {args!r:.80}, does not fit its weights"
            )
    if repeats > len(arrays) or len(lines) > len(arrays):
        raise UserError(
            f"its description has {repeats:.0f} blocks for {count(len(arrays), 'tensor')}"
        )
    classes = document.get("nc")
    if type(classes) is not int or not 1 <= classes <= widest:
        raise UserError(f"its number of classes is {classes!r:.40}")


def complete_document(document: Any, arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Return a model YAML with the number of classes of a plain state dict, checked against it."""
    if not isinstance(document, dict):
        raise UserError("--cfg: a model YAML is a mapping of nc, anchors, backbone, head, ...")
    prefix = f"model.{len(_lines(document)) - 1}"
    anchors, bias = arrays.get(f"{prefix}.anchors"), arrays.get(f"{prefix}.m.0.bias")
    if anchors is None or bias is None or anchors.ndim != 3:
        raise UserError(f"--cfg: the weights have no head at {prefix}; give the YAML of this model")
    completed = {**document, "nc": bias.size // anchors.shape[1] - BOX_OUTPUTS}
    check_document(completed, arrays)
    return completed


def _lines(document: Mapping[str, Any]) -> list[Any]:
    lines = []
    for key in ("backbone", "head"):
        part = document.get(key)
        if not isinstance(part, list) or not all(_is_line(line) for line in part):
            raise UserError(f"its description has no {key} of [from, number, module, args]")
        lines += part
    return lines


def _is_line(line: Any) -> bool:
    return (
        isinstance(line, list)
        and len(line) == 4
        and type(line[1]) is int
        and isinstance(line[3], list)
    )


def _multiple(document: Mapping[str, Any], key: str) -> float:
    value = document.get(key)
    if isinstance(value, (int, float)) and math.isfinite(value) and value > 0:
        return float(value)
    raise UserError(f"its description has {key} {value!r:.40}")


def _integers(values: list[Any]) -> Iterator[int]:
    for value in values:
        if isinstance(value, list):
            yield from _integers(value)
        elif isinstance(value, int):
            yield value
