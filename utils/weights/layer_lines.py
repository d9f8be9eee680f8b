"""Records of layers -> the lines of a model YAML, for a model that carries no YAML.

Before: `public_heads.py`, for public classifiers, which keep the layers of a detector and not its
description. After: `models/graph.py` checks the lines, and `models/stored.py` compares them
with the arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from utils.errors import UserError, brief
from utils.weights.modules import class_name, is_module
from utils.weights.pickle_reader import Record

Args = list[Any]


def lines_of_layers(layers: Sequence[Record]) -> list[Args]:
    """Return [from, number, module, args] of layers in a row, channels and repeats as they are.

    Raises:
        UserError: a layer of another kind, or one that takes other maps than the last one's.
    """
    return [_line(index, layer) for index, layer in enumerate(layers)]


def children(module: Any) -> list[Record]:
    """Return the modules in a module, in their order; [] for anything else."""
    inside = module.state["_modules"].values() if is_module(module) else ()
    return [part for part in inside if is_module(part)]


def _line(index: int, layer: Record) -> Args:
    kind, origin = class_name(layer), layer.state.get("f", -1)
    read = _KINDS.get(kind)
    if read is None or origin != -1:
        raise UserError(
            f"layer {index} is {brief(kind)} from {brief(origin)}; the file has no model YAML, and "
            f"without one only {', '.join(_KINDS)} in a row are understood; give its state dict "
            "with --cfg (docs/en/weights.md)"
        )
    return [-1, *read(layer)]


def _conv(layer: Any) -> Args:
    conv = _child(layer, "conv")
    if _number(conv, "dilation") != 1:
        raise UserError("a dilated convolution, which is not built here")
    names = ("out_channels", "kernel_size", "stride", "padding", "groups")
    args = [_number(conv, name) for name in names]
    return [1, "Conv", args if args[4] != 1 else args[:4] if args[3] != args[1] // 2 else args[:3]]


def _focus(layer: Any) -> Args:
    _, _, (channels, size, *_) = _conv(_child(layer, "conv"))
    return [1, "Focus", [channels, size]]


def _c3(layer: Any) -> Args:
    inner = children(_child(layer, "m"))
    shortcuts = [part.state.get("add") is True for part in inner]
    if len(set(shortcuts)) != 1:
        raise UserError(f"a C3 of {len(inner):,} bottlenecks, with and without shortcuts")
    channels = _number(_child(_child(layer, "cv3"), "conv"), "out_channels")
    return [len(inner), "C3", [channels] if shortcuts[0] else [channels, False]]


def _sppf(layer: Any) -> Args:
    channels = _number(_child(_child(layer, "cv2"), "conv"), "out_channels")
    return [1, "SPPF", [channels, _number(_child(layer, "m"), "kernel_size")]]


def _spp(layer: Any) -> Args:
    channels = _number(_child(_child(layer, "cv2"), "conv"), "out_channels")
    sizes = [_number(pool, "kernel_size") for pool in children(_child(layer, "m"))]
    return [1, "SPP", [channels, sizes]]


_KINDS: dict[str, Callable[[Any], Args]] = {
    "Conv": _conv,
    "Focus": _focus,
    "C3": _c3,
    "SPPF": _sppf,
    "SPP": _spp,
}


def _child(module: Any, name: str) -> Record:
    child = module.state["_modules"].get(name)
    if not is_module(child):
        raise UserError(f"its {class_name(module)} has no part {name}")
    return child


def _number(module: Record, name: str) -> int:
    """Return a whole number of a layer, or that of both sides where it has one for each."""
    value = module.state.get(name)
    sides = value if isinstance(value, tuple) else (value,)
    if not sides or type(sides[0]) is not int or any(side != sides[0] for side in sides[:2]):
        raise UserError(f"its {class_name(module)} has {name} {brief(value)}; a number is needed")
    return sides[0]
