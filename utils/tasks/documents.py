"""A model document of one task -> that of another, of the layers that both have.

Before: --task, with the model of --cfg or --weights. After: `models/graph.py` checks and plans it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from utils.errors import UserError
from utils.files.models import read_model, scale_depth, scale_width, shipped_model

SIZES = "nsmlx"  # of the public detectors


def with_levels(document: Mapping[str, Any], block: str, args: Sequence[Any]) -> Mapping[str, Any]:
    """Return a document whose last layer is a head of boxes.

    Args:
        document: of a model whose head takes several maps; or of a part of a public detector,
            whose other layers are then those of the public one.

    Raises:
        UserError: it is neither.
    """
    if "anchors" not in document:
        document = _public_detector(document)
    *layers, last = document["head"]
    return {**document, "head": [*layers, [last[0], 1, block, list(args)]]}


def _public_detector(part: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the public detector whose first layers are those of a document, except its last."""
    layers = _scaled_layers(part)[:-1]
    taken = ("anchors", "backbone", "head", "depth_multiple", "width_multiple")
    for size in SIZES:
        _, public = read_model(str(shipped_model(f"yolov5{size}")))
        if _scaled_layers(public)[: len(layers)] == layers:
            return {**part, **{name: public[name] for name in taken}}
    raise UserError(
        "--task: the model has no anchors, as a classifier, and its layers are those of no public "
        "detector; give the model to train with --cfg, as --cfg yolov5n.yaml"
    )


def _scaled_layers(document: Mapping[str, Any]) -> list[list[Any]]:
    """Return the lines of all layers with the multiples worked in; public classifiers, which come
    without a YAML, have no others.
    """
    depth, width = document["depth_multiple"], document["width_multiple"]
    lines = []
    for source, number, block, args in [*document["backbone"], *document["head"]]:
        channels = [scale_width(x, width) if type(x) is int else x for x in args[:1]]
        lines.append([source, scale_depth(number, depth), block, [*channels, *args[1:]]])
    return lines
