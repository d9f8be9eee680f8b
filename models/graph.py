"""A model YAML -> a checked `ModelSpec` -> the layers that `detector.py` runs.

The format is the public YOLOv5 one: nc, depth_multiple, width_multiple, what the head needs
(anchors), and the lists backbone and head of [from, number, module, args]. Its strings are names
to look up; nothing of it is evaluated.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import models.blocks
import models.heads  # noqa: F401  both register their blocks
from models.heads.base import Head
from models.registry import BuiltLayer, LayerRequest, find_block, names_of
from utils.errors import UserError
from utils.files.yaml import find_yaml, read_yaml

CHANNEL_MULTIPLE = 8
IMAGE_CHANNELS = 3
REQUIRED_KEYS = ("depth_multiple", "width_multiple", "backbone", "head")
IMAGE = -1  # source index of the image itself
MAX_MULTIPLE = 10  # far beyond any model; a typing error must not build for hours


@dataclass(frozen=True)
class LayerSpec:
    """One line of the YAML with its sources counted from the first layer."""

    sources: tuple[int, ...]  # layer indices, IMAGE for the image
    number: int  # before the depth multiple
    block: str
    args: tuple[Any, ...]


@dataclass(frozen=True)
class ModelSpec:
    """A checked model YAML for a given number of classes."""

    document: Mapping[str, Any]  # the YAML as read, with nc replaced: what checkpoints store
    num_classes: int
    depth_multiple: float
    width_multiple: float
    layers: tuple[LayerSpec, ...]


def read_model_yaml(path: str | Path, num_classes: int | None = None) -> ModelSpec:
    """Read and check a model YAML; num_classes, when given, replaces its nc.

    Raises:
        UserError: no such file, no YAML, or a document that `parse_model` refuses.
    """
    path = find_yaml(str(path), "models")
    document = read_yaml("--cfg", path, "public models: models/yolov5{n,s,m,l,x}.yaml")
    try:
        return parse_model(document, num_classes)
    except UserError as error:
        raise UserError(f"--cfg {path}: {error}") from error


def parse_model(document: Any, num_classes: int | None = None) -> ModelSpec:
    """Check a model document; UserError names the key or layer that is wrong."""
    if not isinstance(document, Mapping):
        raise UserError("a model YAML is a mapping of nc, anchors, backbone, head, ...")
    missing = [key for key in REQUIRED_KEYS if key not in document]
    if missing:
        raise UserError(f"missing {', '.join(missing)}")
    classes = document.get("nc") if num_classes is None else num_classes
    if not isinstance(classes, int) or classes < 1:
        raise UserError(f"nc: {classes!r}; a number of classes from 1 up is needed")
    lines = [*_check_lines(document, "backbone"), *_check_lines(document, "head")]
    document = {**document, "nc": classes}
    layers = tuple(_parse_layer(index, line, document) for index, line in enumerate(lines))
    _check_head(layers, classes)
    return ModelSpec(
        document=document,
        num_classes=classes,
        depth_multiple=_check_multiple(document, "depth_multiple"),
        width_multiple=_check_multiple(document, "width_multiple"),
        layers=layers,
    )


def build_layers(spec: ModelSpec) -> list[BuiltLayer]:
    """Construct the modules of a model in order; UserError names the layer that cannot be."""
    image = BuiltLayer(None, IMAGE_CHANNELS, 1)
    built: list[BuiltLayer] = []
    for index, layer in enumerate(spec.layers):
        sources = [image if source == IMAGE else built[source] for source in layer.sources]
        request = LayerRequest(
            args=layer.args,
            repeats=scale_depth(layer.number, spec.depth_multiple),
            in_channels=tuple(source.out_channels for source in sources),
            in_strides=tuple(source.stride for source in sources),
            scale_width=lambda channels: scale_width(channels, spec.width_multiple),
        )
        try:
            built.append(find_block(layer.block).kind.build(request))
        except UserError as error:
            raise UserError(f"layer {index}, {layer.block} {list(layer.args)}: {error}") from error
    return built


def scale_depth(number: int, multiple: float) -> int:
    """Return repeats of a block after the depth multiple; at least one."""
    return max(round(number * multiple), 1)


def scale_width(channels: int, multiple: float) -> int:
    """Return channels after the width multiple, rounded up to a multiple of 8."""
    return math.ceil(channels * multiple / CHANNEL_MULTIPLE) * CHANNEL_MULTIPLE


def _check_multiple(document: Mapping[str, Any], key: str) -> float:
    value = document[key]
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not 0 < value <= MAX_MULTIPLE:
        raise UserError(f"{key}: {value!r}; a number above 0, at most {MAX_MULTIPLE}, is needed")
    return float(value)


def _check_lines(document: Mapping[str, Any], key: str) -> list[Any]:
    lines = document[key]
    if not isinstance(lines, list) or not lines:
        raise UserError(f"{key}: a list of [from, number, module, args] is needed")
    return lines


def _parse_layer(index: int, line: Any, document: Mapping[str, Any]) -> LayerSpec:
    """Parse one [from, number, module, args]; strings in args are names, or stay strings."""
    if not isinstance(line, list) or len(line) != 4 or not isinstance(line[3], list):
        raise UserError(f"layer {index}: {line!r}; [from, number, module, args] is needed")
    origin, number, block, args = line
    if type(number) is not int or number < 1:
        raise UserError(f"layer {index}: number {number!r}; a count from 1 up is needed")
    kind = find_block(block)
    if number > 1 and not kind.repeats:
        raise UserError(f"layer {index}: number {number}; {block} is written once a layer")
    origins = origin if isinstance(origin, list) else [origin]
    if not origins or len(origins) > 1 and not kind.joins:
        raise UserError(f"layer {index}: from {origin}; {block} takes one source")
    sources = tuple(_resolve_source(index, value) for value in origins)
    names = {"nc": document["nc"], "None": None}
    if issubclass(kind.kind, Head):
        names |= kind.kind.yaml_values(document)
    resolved = tuple(names.get(arg, arg) if isinstance(arg, str) else arg for arg in args)
    return LayerSpec(sources, number, block, resolved)


def _check_head(layers: Sequence[LayerSpec], num_classes: int) -> None:
    """Check that the head is the last layer, it alone, and predicts the model's number of
    classes.
    """
    names = names_of(Head)
    heads = [index for index, layer in enumerate(layers) if layer.block in names]
    if heads != [len(layers) - 1]:
        wanted = " or ".join(names)
        raise UserError(f"layers {heads} are {wanted}; the last layer, and no other, must be")
    last = layers[-1]
    if last.args[:1] != (num_classes,):
        raise UserError(
            f"{last.block} {list(last.args[:1])}: its first arg must be nc, {num_classes}"
        )


def _resolve_source(index: int, origin: Any) -> int:
    """Return an absolute layer index from one counted from the start or, if negative, from here."""
    if isinstance(origin, int):
        source = index + origin if origin < 0 else origin
        if IMAGE <= source < index:
            return source
    raise UserError(f"layer {index}: from {origin!r}; only earlier layers can be sources")
