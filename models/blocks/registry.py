"""Block names of model YAMLs -> the classes that build them; strings are looked up, never run."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from functools import cache
from typing import Any

from duet.utils.errors import UserError, brief

MAX_CHANNELS = 65_536  # of a layer's output; yolov5x has 1,280
MAX_ARGUMENT = 32  # kernel sizes, strides, paddings
LARGEST = {"channels": MAX_CHANNELS, "groups": MAX_CHANNELS}  # other args: MAX_ARGUMENT


@dataclass(frozen=True)
class LayerRequest:
    """What a block learns about its place in the graph when it is planned."""

    args: tuple[Any, ...]
    repeats: int  # after the depth multiple
    in_channels: tuple[int, ...]  # one per source
    in_strides: tuple[int, ...]  # image pixels per cell of each source
    in_margin: int  # rows and columns that the source has beyond those of the image / stride
    scale_width: Callable[[int], int]  # channels of the YAML -> channels of this width

    def counts(
        self, args: Sequence[Any] | None = None, /, **defaults: int | None
    ) -> dict[str, Any]:
        """Return the args by name, all whole numbers, channels as wide as the model.

        UserError names one that is not.

        Args:
            args: instead of all.
            defaults: the names of the args in their order, each with what it is when left out;
                None for one that must be there. All are from 1 up, save one whose default is 0,
                and to `LARGEST` or `MAX_ARGUMENT`.
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
                    f"{name} is {brief(value)}; a whole number from {lowest} to {highest} is needed"
                )
        if "channels" in values:
            values["channels"] = self.scale_width(values["channels"])
        return values


ONCE = 0  # in place of a stride: what is computed once an image
# By the tool that the public tables were made with, in multiply-adds.
NORMALIZATION = 4  # a value that BatchNorm normalizes
SOFTMAX = 3  # a value, less one a row
BATCHNORM_NUMBERS = 4  # a channel: weight, bias, mean and variance


@dataclass(frozen=True)
class Cost:
    """What a block holds, and by it what a cell of its map takes to compute."""

    weights: int = 0  # of convolutions and products, one multiply-add a cell each
    normalized: int = 0  # channels that BatchNorm normalizes
    biases: int = 0
    attended: int = 0  # channels that each cell compares and adds up over all cells
    heads: int = 0  # of attention: softmaxes over all cells

    @property
    def numbers(self) -> int:
        """In its arrays, save those of no dimension: BatchNorm's count of batches."""
        return self.weights + BATCHNORM_NUMBERS * self.normalized + self.biases

    def __add__(self, other: Cost) -> Cost:
        return Cost(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def __mul__(self, times: int) -> Cost:
        return Cost(*(value * times for value in astuple(self)))


@dataclass(frozen=True)
class LayerPlan:
    """A layer before it is made: what it takes, and what the layers after it need to know."""

    make: Callable[[], Any]  # constructs the module
    out_channels: int
    stride: int  # image pixels per cell
    costs: tuple[tuple[int, Cost], ...] = ()  # each with the stride that it computes at, or ONCE
    buffered: int = 0  # numbers in its buffers, beside those of the costs
    margin: int = 0  # rows and columns beyond those of the image / stride

    @property
    def numbers(self) -> int:
        """In its arrays, as `Cost.numbers`."""
        return self.buffered + sum(cost.numbers for _, cost in self.costs)


def plan_layer(
    kind: Any, request: LayerRequest, out_channels: int, *arguments: Any, stride: int = 1
) -> LayerPlan:
    """Return the plan of a block with one source, whose constructor and static `cost` take the
    channels of the source, its own, and these arguments.

    stride: of the block itself.
    """
    sizes, stride = (request.in_channels[0], out_channels), request.in_strides[0] * stride
    costs = ((stride, kind.cost(*sizes, *arguments)),)
    return LayerPlan(lambda: kind(*sizes, *arguments), out_channels, stride, costs)


@dataclass(frozen=True)
class Block:
    """The class that builds the layers of one name, and how they may stand in the graph."""

    kind: Any  # has a classmethod `plan(request: LayerRequest) -> LayerPlan`
    repeats: bool  # takes a number above 1
    joins: bool  # takes several sources
    trims: bool = False  # takes a source with a margin


# What registers blocks, loaded when the first one is looked up; a head is the last layer's.
MODULES = (
    "duet.models.blocks.bottleneck",
    "duet.models.blocks.conv",
    "duet.models.blocks.pooling",
    "duet.models.blocks.transformer",
    "duet.models.heads.anchor.head",
    "duet.models.heads.classify.head",
    "duet.models.heads.distribution.head",
    "duet.models.heads.mask.head",
)
_BLOCKS: dict[str, Block] = {}


def register(
    name: str, repeats: bool = False, joins: bool = False, trims: bool = False
) -> Callable[[type], type]:
    """Decorate a class: YAML layers called `name` are planned by the class's `plan(request)`."""

    def add(block: Any) -> Any:
        assert name not in _BLOCKS, f"block {name} registered twice"
        _BLOCKS[name] = Block(block, repeats, joins, trims)
        return block

    return add


@cache
def _load_modules() -> None:
    for name in MODULES:
        importlib.import_module(name)


def names_of(base: type) -> list[str]:
    """Return the sorted names of all blocks whose class derives from a base."""
    _load_modules()
    return sorted(name for name, block in _BLOCKS.items() if issubclass(block.kind, base))


def find_block(name: object) -> Block:
    """Return the block of a name; UserError with the known names for any other."""
    _load_modules()
    if not isinstance(name, str) or name not in _BLOCKS:
        raise UserError(f"unknown block {brief(name)}; known: {', '.join(sorted(_BLOCKS))}")
    return _BLOCKS[name]


def count_gflops(plans: Sequence[LayerPlan], image_size: int = 640, folded: bool = False) -> float:
    """Return 10^9 floating-point operations for a square image, two for each multiply-add.

    As the public tables count: convolutions, products and softmaxes, and BatchNorm unless it is
    folded into the convolutions; neither activations nor what the head decodes.
    """
    parts = [
        (1 if stride == ONCE else (image_size / stride) ** 2, cost)
        for plan in plans
        for stride, cost in plan.costs
    ]
    return 2e-9 * sum(_multiply_adds(cells, cost, folded) for cells, cost in parts)


def _multiply_adds(cells: float, cost: Cost, folded: bool) -> float:
    """Return those of a block for a map of so many cells."""
    normalization = 0 if folded else NORMALIZATION * cost.normalized
    attention = cost.attended * cells + cost.heads * (SOFTMAX * cells - 1)
    return cells * (cost.weights + normalization + attention)
