"""Block names of model YAMLs -> the classes that build them; strings are looked up, never run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from utils.errors import UserError


@dataclass(frozen=True)
class LayerRequest:
    """What a block learns about its place in the graph when it is built."""

    args: tuple[Any, ...]
    repeats: int  # after the depth multiple
    in_channels: tuple[int, ...]  # one per source
    in_strides: tuple[int, ...]  # image pixels per cell of each source
    scale_width: Callable[[int], int]  # channels of the YAML -> channels of this width


@dataclass(frozen=True)
class BuiltLayer:
    """A module with what the layers after it need to know."""

    module: Any
    out_channels: int
    stride: int


BlockBuilder = Callable[[LayerRequest], BuiltLayer]
_BUILDERS: dict[str, BlockBuilder] = {}


def register(name: str) -> Callable[[type], type]:
    """Class decorator: YAML layers called `name` are built by the class's `build(request)`."""

    def add(block: Any) -> Any:
        assert name not in _BUILDERS, f"block {name} registered twice"
        _BUILDERS[name] = block.build
        return block

    return add


def find_builder(name: object) -> BlockBuilder:
    """The builder of a block name; UserError with the known names for any other."""
    if not isinstance(name, str) or name not in _BUILDERS:
        raise UserError(f"unknown block {name!r}; known: {', '.join(sorted(_BUILDERS))}")
    return _BUILDERS[name]
