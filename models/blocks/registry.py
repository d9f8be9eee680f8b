"""Registry of block names in model YAMLs; strings are looked up, never evaluated."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from functools import cache
from typing import Any

from duet.utils.errors import UserError, brief

MAX_CHANNELS = 65_536  # per layer output; yolov5x has 1,280
MAX_ARGUMENT = 32  # kernel sizes, strides, paddings
# Of other args: MAX_ARGUMENT. The public models have 32 masks.
LARGEST = {
    **dict.fromkeys(("channels", "groups", "prototype_channels"), MAX_CHANNELS),
    "num_masks": 1024,
}


@dataclass(frozen=True)
class LayerRequest:
    """Input to planning a block: its arguments and its sources in the graph."""

    args: tuple[Any, ...]
    repeats: int  # after the depth multiple
    in_channels: tuple[int, ...]  # one per source
    in_strides: tuple[int, ...]  # image pixels per cell of each source
    in_margin: int  # rows and columns of the source beyond image size / stride
    scale_width: Callable[[int], int]  # applies the width multiple to channels

    def counts(
        self, args: Sequence[object] | None = None, /, **defaults: int | None
    ) -> dict[str, Any]:
        """Return the args by name as integers, with the width multiple applied to channels.

        UserError names an invalid one.

        Args:
            args: used instead of `self.args`.
            defaults: default of each arg in order; None if required. Values range from 1 (from 0
                if the default is 0) to `LARGEST` or `MAX_ARGUMENT`.
        """
        names, args = list(defaults), self.args if args is None else args
        if len(args) > len(names):
            raise UserError(f"{len(args)} args; accepted: {', '.join(names)}")
        values = {**defaults, **dict(zip(names, args, strict=False))}
        for name, value in values.items():
            lowest = 0 if defaults[name] == 0 else 1
            highest = LARGEST.get(name, MAX_ARGUMENT)
            if type(value) is not int or not lowest <= value <= highest:
                raise UserError(
                    f"{name} is {brief(value)}; accepted: whole numbers from {lowest} to {highest}"
                )
        if "channels" in values:
            values["channels"] = self.scale_width(values["channels"])
        return values


ONCE = 0  # instead of a stride: computed once per image
BATCHNORM_NUMBERS = 4  # per channel: weight, bias, mean and variance


@dataclass(frozen=True)
class Cost:
    """Sizes of a block, which determine the computation per cell of its map."""

    weights: int = 0  # convolutions and matrix products: one multiply-add per cell each
    normalized: int = 0  # channels normalized by BatchNorm
    biases: int = 0
    attended: int = 0  # channels compared and summed over all cells for each cell
    heads: int = 0  # attention heads: softmaxes over all cells

    @property
    def numbers(self) -> int:
        """Number of elements in its arrays, except 0-d ones such as BatchNorm's batch count."""
        return self.weights + BATCHNORM_NUMBERS * self.normalized + self.biases

    def __add__(self, other: Cost) -> Cost:
        return Cost(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def __mul__(self, times: int) -> Cost:
        return Cost(*(value * times for value in astuple(self)))


@dataclass(frozen=True)
class LayerPlan:
    """A layer before construction: its cost, and what later layers need to know."""

    make: Callable[[], Any]  # constructs the module
    out_channels: int
    stride: int  # image pixels per cell
    costs: tuple[tuple[int, Cost], ...] = ()  # with the stride of the computation, or ONCE
    buffered: int = 0  # elements in buffers not covered by costs
    margin: int = 0  # rows and columns beyond image size / stride

    @property
    def numbers(self) -> int:
        """Number of elements in its arrays, as in `Cost.numbers`."""
        return self.buffered + sum(cost.numbers for _, cost in self.costs)


def require_grid(
    kernel_size: int, stride: int, padding: int | None = None, margin: int = 0
) -> None:
    """Raise UserError unless a window gives maps of image size / stride; padding None: half of it.

    margin: rows and columns of the source beyond that.
    """
    used = kernel_size // 2 if padding is None else padding
    fitting = [x for x in range(kernel_size) if (margin + 2 * x - kernel_size) // stride == -1]
    if used not in fitting:
        advice = "an odd kernel_size" if padding is None or not fitting else f"padding {fitting[0]}"
        raise UserError(
            f"kernel_size {kernel_size}, stride {stride} and padding {used} do not give a map of "
            f"image size / stride; use {advice}"
        )


def plan_layer(
    kind: Any, request: LayerRequest, out_channels: int, *arguments: Any, stride: int = 1
) -> LayerPlan:
    """Return the plan of a block with one source, whose constructor and static `cost` take
    (in_channels, out_channels, *arguments).

    stride: the block's own stride.
    """
    sizes, stride = (request.in_channels[0], out_channels), request.in_strides[0] * stride
    costs = ((stride, kind.cost(*sizes, *arguments)),)
    return LayerPlan(lambda: kind(*sizes, *arguments), out_channels, stride, costs)


@dataclass(frozen=True)
class Block:
    """A registered block class and how it may be used in the graph."""

    kind: Any  # has a classmethod `plan(request: LayerRequest) -> LayerPlan`
    repeats: bool  # accepts a number above 1
    joins: bool  # accepts several sources
    trims: bool = False  # accepts a source with a margin


# Modules that register blocks or heads, imported at the first look-up.
MODULES = (
    "duet.models.blocks.transformer",
    "duet.models.blocks.variants",
    "duet.models.blocks.yolov5",
    "duet.models.heads.anchor.head",
    "duet.models.heads.classify.head",
    "duet.models.heads.distribution.head",
    "duet.models.heads.mask.head",
)
_BLOCKS: dict[str, Block] = {}


def register(
    name: str, repeats: bool = False, joins: bool = False, trims: bool = False
) -> Callable[[type], type]:
    """Register a class whose `plan(request)` plans the YAML layers called `name`."""

    def add(block: object) -> Any:
        assert name not in _BLOCKS, f"block {name} registered twice"
        _BLOCKS[name] = Block(block, repeats, joins, trims)
        return block

    return add


@cache
def _load_modules() -> None:
    for name in MODULES:
        importlib.import_module(name)


def names_of(base: type) -> list[str]:
    """Return the sorted names of all blocks derived from a base class."""
    _load_modules()
    return sorted(name for name, block in _BLOCKS.items() if issubclass(block.kind, base))


def find_block(name: object) -> Block:
    """Return a block by name; UserError listing the known names if there is none."""
    _load_modules()
    if not isinstance(name, str) or name not in _BLOCKS:
        raise UserError(f"unknown block {brief(name)}; known: {', '.join(sorted(_BLOCKS))}")
    return _BLOCKS[name]
