"""A model document of one task -> that of another, of the layers that both have.

Before: --task, with the model of --cfg or --weights. After: `models/graph.py` checks and plans it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from utils.errors import UserError
from utils.files.models import read_model, shipped_model

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
    """Return the public detector whose first layers are those of a document, save its last."""
    layers = [*part["backbone"], *part["head"]][:-1]
    multiples = ("depth_multiple", "width_multiple")
    for size in SIZES:
        _, public = read_model(str(shipped_model(f"yolov5{size}")))
        own = [*public["backbone"], *public["head"]][: len(layers)]
        if own == layers and all(public[name] == part[name] for name in multiples):
            return {**part, "anchors": public["anchors"],
                    "backbone": public["backbone"], "head": public["head"]}  # fmt: skip
    raise UserError(
        "--task: the weights have no layers behind their backbone, and it is that of no public "
        "detector; give the model to train with --cfg"
    )
