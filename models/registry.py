"""Block names of model YAMLs -> the classes that build them; strings are looked up, never run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from utils.errors import UserError, brief

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
    scale_width: Callable[[int], int]  # channels of the YAML -> channels of this width

    def counts(self, **defaults: int | None) -> dict[str, Any]:
        """Return the args by name, all whole numbers; UserError names one that is not.

        Args:
            defaults: the names of the args in their order, each with what it is when left out;
                None for one that must be there. All are from 1 up, save one whose default is 0,
                and to `LARGEST` or `MAX_ARGUMENT`.
        """
        names = list(defaults)
        if len(self.args) > len(names):
            raise UserError(f"{len(self.args)} args; accepted: {', '.join(names)}")
        values = {**defaults, **dict(zip(names, self.args, strict=False))}
        for name, value in values.items():
            lowest = 0 if defaults[name] == 0 else 1
            highest = LARGEST.get(name, MAX_ARGUMENT)
            if type(value) is not int or not lowest <= value <= highest:
                raise UserError(
                    f"{name} is {brief(value)}; a whole number from {lowest} to {highest} is needed"
                )
        return values


@dataclass(frozen=True)
class LayerPlan:
    """A layer before it is made: what it takes, and what the layers after it need to know."""

    make: Callable[[], Any]  # constructs the module
    numbers: int  # in its arrays, save those of no dimension: BatchNorm's count of batches
    out_channels: int
    stride: int  # image pixels per cell


@dataclass(frozen=True)
class Block:
    """The class that builds the layers of one name, and how they may stand in the graph."""

    kind: Any  # has a classmethod `plan(request: LayerRequest) -> LayerPlan`
    repeats: bool  # takes a number above 1
    joins: bool  # takes several sources


_BLOCKS: dict[str, Block] = {}


def register(name: str, repeats: bool = False, joins: bool = False) -> Callable[[type], type]:
    """Decorate a class: YAML layers called `name` are planned by the class's `plan(request)`."""

    def add(block: Any) -> Any:
        assert name not in _BLOCKS, f"block {name} registered twice"
        _BLOCKS[name] = Block(block, repeats, joins)
        return block

    return add


def names_of(base: type) -> list[str]:
    """Return the names of all blocks whose class derives from a base."""
    return [name for name, block in _BLOCKS.items() if issubclass(block.kind, base)]


def find_block(name: object) -> Block:
    """Return the block of a name; UserError with the known names for any other."""
    if not isinstance(name, str) or name not in _BLOCKS:
        raise UserError(f"unknown block {brief(name)}; known: {', '.join(sorted(_BLOCKS))}")
    return _BLOCKS[name]
