"""Parse a model document into a checked `ModelSpec`, and plan its layers for `detector.py`.

The format is the public YOLOv5 one: nc, depth_multiple, width_multiple, keys for the head
(anchors), the lists backbone and head of [from, number, module, args], and optionally ch (image
channels) and act (activation). Strings are looked up as names; nothing is evaluated. A document
comes from a YAML or a weights file (`models/stored.py`); the same limits are checked before
anything is built.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from duet.models.blocks.registry import (
    MAX_CHANNELS,
    ONCE,
    Cost,
    LayerPlan,
    LayerRequest,
    find_block,
    names_of,
)
from duet.models.blocks.yolov5 import Activation, find_activation
from duet.models.heads.base import Head
from duet.utils.errors import UserError, brief
from duet.utils.files.json_files import Document
from duet.utils.files.model_yamls import read_model, scale_depth, scale_width, to_plain

COLOURS = {1: "grey", 3: "RGB"}  # by number of image channels
DEFAULT_CHANNELS = 3
REQUIRED_KEYS = ("depth_multiple", "width_multiple", "backbone", "head")
IMAGE = -1  # source index of the image itself
# Far beyond any model; prevents typos and hostile files from building for hours or filling memory.
# yolov5x6 has 33 layers, 72 blocks, 141 million parameters, and maps of 176 values per pixel.
MAX_MULTIPLE = 10
MAX_CLASSES = 10_000
MAX_BLOCKS = 1_000
MAX_NUMBERS = 2_000_000_000
MAX_MAP_NUMBERS = 4_096  # values in all layers' maps per image pixel
# Multiply-adds, as counted by the tool behind the public tables.
NORMALIZATION = 4  # per value normalized by BatchNorm
SOFTMAX = 3  # per value, minus 1 per row


@dataclass(frozen=True)
class LayerSpec:
    """One line of the YAML with absolute source indices."""

    sources: tuple[int, ...]  # layer indices, or IMAGE
    number: int  # before the depth multiple
    block: str
    args: tuple[Any, ...]


@dataclass(frozen=True)
class ModelSpec:
    """A checked model YAML for a given number of classes."""

    document: Document  # the YAML as read, with nc replaced; stored in checkpoints
    num_classes: int
    image_channels: int
    activation: Activation
    depth_multiple: float
    width_multiple: float
    layers: tuple[LayerSpec, ...]


def read_model_yaml(path: str | Path, num_classes: int | None = None) -> ModelSpec:
    """Read and check a model YAML; num_classes, if given, replaces nc.

    Raises:
        UserError: missing file, invalid YAML, or rejected by `parse_model` or `plan_layers`.
    """
    path, document = read_model(str(path))
    try:
        spec = parse_model(document, num_classes)
        plan_layers(spec)
    except UserError as error:
        raise UserError(f"--cfg {path}: {error}") from error
    return spec


def parse_model(document: object, num_classes: int | None = None) -> ModelSpec:
    """Check a model document; UserError names the invalid key or layer."""
    document = to_plain(document)
    if not isinstance(document, dict):
        raise UserError("a model YAML must be a mapping with nc, anchors, backbone, head, ...")
    missing = [key for key in REQUIRED_KEYS if key not in document]
    if missing:
        raise UserError(f"missing {', '.join(missing)}")
    classes = document.get("nc") if num_classes is None else num_classes
    if type(classes) is not int or not 1 <= classes <= MAX_CLASSES:
        raise UserError(
            f"nc: {brief(classes)}; accepted: a number of classes from 1 to {MAX_CLASSES:,}"
        )
    lines = [*_check_lines(document, "backbone"), *_check_lines(document, "head")]
    if len(lines) > MAX_BLOCKS:
        raise UserError(f"{len(lines):,} layers; accepted: at most {MAX_BLOCKS:,}")
    document = {**document, "nc": classes}
    layers = tuple(_parse_layer(index, line, document) for index, line in enumerate(lines))
    _check_head(layers, classes)
    return ModelSpec(
        document=document,
        num_classes=classes,
        image_channels=_check_channels(document.get("ch", DEFAULT_CHANNELS)),
        activation=find_activation(document.get("act")),
        depth_multiple=_check_multiple(document, "depth_multiple"),
        width_multiple=_check_multiple(document, "width_multiple"),
        layers=layers,
    )


def plan_layers(spec: ModelSpec) -> list[LayerPlan]:
    """Plan a model's layers in order and check limits on their totals; nothing is built yet.

    Raises:
        UserError: names the layer that is invalid or exceeds a limit.
    """
    image = LayerPlan(lambda: None, spec.image_channels, 1)
    plans: list[LayerPlan] = []
    blocks = 0
    for index, layer in enumerate(spec.layers):
        sources = [image if source == IMAGE else plans[source] for source in layer.sources]
        request = LayerRequest(
            args=layer.args,
            repeats=scale_depth(layer.number, spec.depth_multiple),
            in_channels=tuple(source.out_channels for source in sources),
            in_strides=tuple(source.stride for source in sources),
            in_margin=max(source.margin for source in sources),
            scale_width=lambda channels: scale_width(channels, spec.width_multiple),
        )
        try:
            block = find_block(layer.block)
            if request.in_margin and not block.trims:
                raise UserError("its source is padded, which only nn.MaxPool2d accepts")
            plans.append(block.kind.plan(request))
            blocks += request.repeats
            _check_sums(plans, blocks)
        except UserError as error:
            raise UserError(
                f"layer {index}, {layer.block} {brief(list(layer.args))}: {error}"
            ) from error
    return plans


def coarsest_stride(plans: Sequence[LayerPlan]) -> int:
    return max(plan.stride for plan in plans)


def count_gflops(plans: Sequence[LayerPlan], image_size: int = 640, folded: bool = False) -> float:
    """Return GFLOPs for a square image, counting a multiply-add as two operations.

    Like the public tables, this counts convolutions, matrix products, softmaxes, and BatchNorm
    unless folded into the convolutions, but not activations or decoding.
    """
    parts = [
        (1 if stride == ONCE else (image_size / stride) ** 2, cost)
        for plan in plans
        for stride, cost in plan.costs
    ]
    return 2e-9 * sum(_multiply_adds(cells, cost, folded) for cells, cost in parts)


def _multiply_adds(cells: float, cost: Cost, folded: bool) -> float:
    """Return a block's multiply-adds for a map with this many cells."""
    normalization = 0 if folded else NORMALIZATION * cost.normalized
    attention = cost.attended * cells + cost.heads * (SOFTMAX * cells - 1)
    return cells * (cost.weights + normalization + attention)


def _check_sums(plans: Sequence[LayerPlan], blocks: int) -> None:
    """Raise UserError if the layers so far exceed a limit.

    blocks: total over all layers, after the depth multiple.
    """
    for what, value, limit in (
        ("channels", plans[-1].out_channels, MAX_CHANNELS),
        ("blocks up to here", blocks, MAX_BLOCKS),
        ("weights up to here", sum(plan.numbers for plan in plans), MAX_NUMBERS),
        (
            "values per pixel in all maps up to here",
            sum(plan.out_channels / plan.stride**2 for plan in plans),
            MAX_MAP_NUMBERS,
        ),
    ):
        if value > limit:
            raise UserError(f"{value:,.0f} {what}; accepted: at most {limit:,}")


def _check_channels(value: object) -> int:
    if type(value) is not int or value not in COLOURS:
        accepted = " or ".join(f"{channels} ({name})" for channels, name in COLOURS.items())
        raise UserError(f"ch: {brief(value)}; accepted: {accepted}")
    return value


def _check_multiple(document: Document, key: str) -> float:
    value = document[key]
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not 0 < value <= MAX_MULTIPLE:
        raise UserError(
            f"{key}: {brief(value)}; accepted: a number above 0 and at most {MAX_MULTIPLE}"
        )
    return float(value)


def _check_lines(document: Document, key: str) -> list[object]:
    lines = document[key]
    if not isinstance(lines, list) or not lines:
        raise UserError(f"{key} must be a list of [from, number, module, args]")
    return lines


def _parse_layer(index: int, line: object, document: Document) -> LayerSpec:
    """Parse one [from, number, module, args]; known names in args are replaced by their values."""
    if not isinstance(line, list) or len(line) != 4 or not isinstance(line[3], list):
        raise UserError(f"layer {index}: {brief(line)}; expected [from, number, module, args]")
    origin, number, block, args = line
    if type(number) is not int or not 1 <= number <= MAX_BLOCKS:
        raise UserError(f"layer {index}: number {brief(number)}; accepted: 1 to {MAX_BLOCKS:,}")
    try:
        kind = find_block(block)
    except UserError as error:
        raise UserError(f"layer {index}: {error}") from error
    if number > 1 and not kind.repeats:
        raise UserError(f"layer {index}: number {number}; {block} cannot repeat: use 1")
    sources = _parse_sources(index, origin, block, kind.joins)
    names = {"nc": document["nc"], "None": None}
    if issubclass(kind.kind, Head):
        names |= kind.kind.yaml_values(document)
    resolved = tuple(names.get(arg, arg) if isinstance(arg, str) else arg for arg in args)
    return LayerSpec(sources, number, block, resolved)


def _parse_sources(index: int, origin: object, block: object, joins: bool) -> tuple[int, ...]:
    """Return the layers that a layer reads; several only for a block that joins them."""
    origins = origin if isinstance(origin, list) else [origin]
    if not origins or len(origins) > 1 and not joins:
        raise UserError(f"layer {index}: from {brief(origin)}; {block} takes exactly one source")
    if len(origins) > MAX_BLOCKS:
        raise UserError(
            f"layer {index}: {len(origins):,} sources; accepted: at most {MAX_BLOCKS:,}"
        )
    return tuple(_resolve_source(index, value) for value in origins)


def _check_head(layers: Sequence[LayerSpec], num_classes: int) -> None:
    """Check that only the last layer is a head, and that it predicts num_classes classes."""
    names = names_of(Head)
    heads = [index for index, layer in enumerate(layers) if layer.block in names]
    if heads != [len(layers) - 1]:
        wanted = " or ".join(names)
        raise UserError(
            f"heads ({wanted}) at layers {brief(heads)}; exactly the last layer must be one"
        )
    last = layers[-1]
    if last.args[:1] != (num_classes,):
        raise UserError(
            f"{last.block} {brief(list(last.args[:1]))}: the first arg must be nc, {num_classes}"
        )


def _resolve_source(index: int, origin: object) -> int:
    """Return an absolute layer index; negative origins count back from this layer."""
    if type(origin) is int:
        source = index + origin if origin < 0 else origin
        if IMAGE <= source < index:
            return source
    raise UserError(f"layer {index}: from {brief(origin)}; only earlier layers can be sources")
