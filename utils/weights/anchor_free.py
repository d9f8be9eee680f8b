"""Public anchor-free models: records of the ultralytics package's YOLOv5u and YOLOv8 detectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from duet.utils.errors import UserError, brief
from duet.utils.weights.accepted_names import ANCHOR_FREE_ONLY, OTHER_PACKAGE
from duet.utils.weights.modules import class_name
from duet.utils.weights.pickle_reader import Record
from duet.utils.weights.plain import to_plain

HEAD = "Detect"  # its name there; here it is another block than the head with anchors
BLOCK = "DetectAnchorFree"
LAYERS = {"Conv", "C2f", "C3", "SPPF", "Upsample", "Concat", HEAD}
DISTANCES = 16
# What the first convolution of the class branch is in all models that are read.
CLASS_BRANCH = "cv3.0.0.conv.weight"
KEYS = ("nc", "backbone", "head")
MULTIPLES = ("depth_multiple", "width_multiple")


def is_anchor_free(layers: list[Record]) -> bool:
    """Return whether layers are those of a model of the package."""
    return bool(layers) and layers[-1].kind.startswith(OTHER_PACKAGE)


def anchor_free_document(
    model: Record, layers: list[Record], names: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return the model YAML of a model, with the block of our head.

    Args:
        names: those of the arrays in the model.

    Raises:
        UserError: a model that is not read.
    """
    head, kinds = layers[-1], [class_name(layer) for layer in layers]
    if set(kinds) - LAYERS or kinds[-1] != HEAD:
        raise UserError(f"it holds {ANCHOR_FREE_ONLY}")
    if f"model.{len(layers) - 1}.{CLASS_BRANCH}" not in names or (
        head.state.get("reg_max") != DISTANCES
    ):
        raise UserError(f"it holds {ANCHOR_FREE_ONLY}")
    own = model.state.get("yaml")
    if not isinstance(own, dict) or not {"backbone", "head"} <= set(own):
        raise UserError(f"its {class_name(model)} describes no model (attribute yaml)")
    document = to_plain(own)
    found = {key: document.get(key) for key in (*KEYS, *MULTIPLES)}
    scales, name = document.get("scales"), document.get("scale")
    scale = scales.get(name) if isinstance(scales, dict) and isinstance(name, str) else None
    for part in ("backbone", "head"):
        found[part] = found[part] if isinstance(found[part], list) else []
    if isinstance(scale, list) and len(scale) == 3:
        *multiples, limit = scale
        found |= dict(zip(MULTIPLES, multiples, strict=True))
        for part in ("backbone", "head"):
            found[part] = [_limited(line, limit) for line in found[part]]
    found["nc"] = head.state.get("nc")
    if document.get("activation"):
        found["act"] = document["activation"]
    if document.get("channels", 3) != 3:
        found["ch"] = document["channels"]
    *lines, last = found["head"] or [None]
    if not isinstance(last, list) or last[2:3] != [HEAD]:
        raise UserError(
            f"its last layer is {HEAD}; its model YAML has {brief(last)}, which cannot be built"
        )
    return {**found, "head": [*lines, [last[0], 1, BLOCK, ["nc"]]]}


def _limited(line: Any, limit: Any) -> Any:
    """Return [from, number, module, args] with at most so many channels, before the multiple."""
    if not isinstance(line, list) or len(line) != 4 or not isinstance(line[3], list):
        return line
    channels = line[3][:1]
    sizes = [*channels, limit]
    if line[2] != "Concat" and channels and all(type(size) is int for size in sizes):
        channels = [min(sizes)]
    return [*line[:3], [*channels, *line[3][1:]]]
