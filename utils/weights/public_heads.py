"""Reconstruct the heads of public models from their records and arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from duet.utils.activation import DEFAULT_ACTIVATION
from duet.utils.errors import UserError, brief
from duet.utils.files.model_yamls import PUBLIC_MODELS, block_of, shipped_model
from duet.utils.files.yaml_files import read_yaml
from duet.utils.weights.modules import (
    CLASSIFIER,
    Contents,
    StoredArray,
    activation_of,
    class_name,
    is_module,
    is_tensor,
    to_plain,
)
from duet.utils.weights.pickle_reader import ANCHOR_FREE_ONLY, OTHER_PACKAGE, Record


def children(module: Any) -> list[Record]:
    """Return the modules in a module, in their order; [] for anything else."""
    inside = module.state["_modules"].values() if is_module(module) else ()
    return [part for part in inside if is_module(part)]


# Of the ultralytics package: YOLOv5u and YOLOv8, whose head is called Detect there.
ANCHOR_FREE, ANCHOR_FREE_THERE = "DetectAnchorFree", "Detect"
ANCHOR_FREE_LAYERS = {"Conv", "C2f", "C3", "SPPF", "Upsample", "Concat", ANCHOR_FREE_THERE}
DISTANCES = 16
# Weight of the first convolution of the class branch, in all supported models.
CLASS_BRANCH = "cv3.0.0.conv.weight"
MULTIPLES = ("depth_multiple", "width_multiple")


def anchor_free_document(
    model: Record, layers: list[Record], names: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return the model YAML of a model, with the block of our head.

    Args:
        names: names of the model's arrays.

    Raises:
        UserError: a model that is not read.
    """
    head, kinds = layers[-1], [class_name(layer) for layer in layers]
    if set(kinds) - ANCHOR_FREE_LAYERS or kinds[-1] != ANCHOR_FREE_THERE:
        raise UserError(f"it holds {ANCHOR_FREE_ONLY}")
    if f"model.{len(layers) - 1}.{CLASS_BRANCH}" not in names or (
        head.state.get("reg_max") != DISTANCES
    ):
        raise UserError(f"it holds {ANCHOR_FREE_ONLY}")
    own = model.state.get("yaml")
    if not isinstance(own, dict) or not {"backbone", "head"} <= set(own):
        raise UserError(f"its {class_name(model)} describes no model (attribute yaml)")
    document = to_plain(own)
    found = {key: document.get(key) for key in ("nc", "backbone", "head", *MULTIPLES)}
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
    if not isinstance(last, list) or last[2:3] != [ANCHOR_FREE_THERE]:
        raise UserError(
            f"its last layer is {ANCHOR_FREE_THERE}; its model YAML has {brief(last)}, which "
            "cannot be built"
        )
    return {**found, "head": [*lines, [last[0], 1, ANCHOR_FREE, ["nc"]]]}


def _limited(line: Any, limit: Any) -> Any:
    """Return [from, number, module, args] with at most so many channels, before the multiple."""
    if not isinstance(line, list) or len(line) != 4 or not isinstance(line[3], list):
        return line
    channels = line[3][:1]
    sizes = [*channels, limit]
    if line[2] != "Concat" and channels and all(type(size) is int for size in sizes):
        channels = [min(sizes)]
    return [*line[:3], [*channels, *line[3][1:]]]


ANCHORED = "Detect", "Segment"
MAX_LEVELS, MAX_ANCHORS = 8, 256
# ImageNet mean and deviation (RGB, in [0, 1]), used by public classifiers.
IMAGE_MEAN, IMAGE_STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def describe(
    model: Record, stored: Mapping[str, StoredArray], contents: Contents
) -> tuple[Mapping[str, Any], tuple[int, ...]]:
    """Return a model's YAML and the strides of the head's input maps, () if the file has none.

    Raises:
        UserError: its head, or another part, cannot be built here.
    """
    layers = children(model.state["_modules"].get("model"))
    head = layers[-1] if layers else None
    if head is not None and head.kind.startswith(OTHER_PACKAGE):
        return anchor_free_document(model, layers, stored), _strides(contents, head)
    if head is not None and class_name(head) in ANCHORED:
        strides = _strides(contents, head)
        return anchored_document(model, layers, stored, strides), strides
    if class_name(head) == CLASSIFIER:
        return classifier_document(model, layers, stored), ()
    raise UserError(
        f"its last layer is {brief(class_name(head) or 'none')}; this version builds models whose "
        f"last layer is {', '.join((*ANCHORED, ANCHOR_FREE))} or {CLASSIFIER}"
    )


def anchored_document(
    model: Record,
    layers: list[Record],
    stored: Mapping[str, StoredArray],
    strides: tuple[int, ...],
) -> Mapping[str, Any]:
    """Return the YAML of a model with anchors: its own, with the anchors of the head's buffer."""
    document = model.state.get("yaml")
    if not isinstance(document, dict):
        raise UserError(
            f"its {class_name(model)} describes no model (attribute yaml); give a model of the "
            "public YOLOv5, or its state dict with --cfg"
        )
    head = layers[-1]
    anchors = _anchors_in_pixels(stored.get(f"model.{len(layers) - 1}.anchors"), strides)
    document = to_plain({**document, "anchors": anchors, "nc": head.state.get("nc")})
    block = block_of(document)
    if block != class_name(head):
        raise UserError(
            f"its last layer is {class_name(head)}; by its model YAML {brief(block)} is built here"
        )
    return document


def _strides(contents: Contents, head: Record) -> tuple[int, ...]:
    """Return the pixels a cell of each level, from the head's attribute."""
    value = head.state.get("stride")
    strides = contents.read_tensor(value).array.reshape(-1) if is_tensor(value) else np.zeros(0)
    within = np.isfinite(strides) & (strides >= 1) & (strides <= 512)
    if not 1 <= strides.size <= MAX_LEVELS or not within.all():
        raise UserError("its head has no strides")
    return tuple(int(stride) for stride in strides)


def _anchors_in_pixels(stored: StoredArray | None, strides: tuple[int, ...]) -> list[list[float]]:
    """Return the anchors of a head's buffer as a model YAML has them."""
    anchors = np.zeros(0) if stored is None else stored.array
    if anchors.ndim != 3 or len(anchors) != len(strides) or anchors.size > MAX_ANCHORS:
        raise UserError(f"its head has no anchors of shape (levels, A, 2) for strides {strides}")
    pixels = anchors.astype(np.float64) * np.reshape(strides, (-1, 1, 1))
    return pixels.reshape(len(strides), -1).tolist()


def classifier_document(
    model: Record, layers: list[Record], stored: Mapping[str, StoredArray]
) -> Mapping[str, Any]:
    """Return the YAML of a classifier: the public one, in the size of its layers.

    Files of classifiers have none. The last backbone convolution has 1,024 channels times the width
    multiple, and the longest C3 9 bottlenecks times the depth multiple.
    """
    layers = layers[:-1]
    linear = stored.get(f"model.{len(layers)}.linear.weight")
    if linear is None or linear.array.ndim != 2:
        raise UserError("its Classify has no linear layer; those of v6.2 and later have one")
    _check_normalization(model.state.get("transforms"))
    public = read_yaml("--cfg", shipped_model("yolov5n-cls"), PUBLIC_MODELS)
    convolution = stored.get("model.7.conv.weight")
    found = [(class_name(layer), _strides_of(layer)) for layer in layers]
    if convolution is None or found != [
        (kind, (args[2],) * 2 if kind == "Conv" else None)
        for _, _, kind, args in public["backbone"]
    ]:
        raise UserError(
            "it is another classifier than those of the public YOLOv5, and the file has no model "
            "YAML; give its state dict with --cfg"
        )
    names = [x for x in stored if x.startswith("model.6.m.") and x.endswith(".cv1.conv.weight")]
    document = {
        **public,
        "nc": len(linear.array),
        "depth_multiple": len(names) / 9,
        "width_multiple": math.prod(convolution.array.shape[:1]) / 1024,
    }
    activation = activation_of(layers[0].state["_modules"].get("act"))
    if activation not in (None, DEFAULT_ACTIVATION):
        document["act"] = str(activation)
    return document


def _strides_of(layer: Record) -> Any:
    """Return the strides of a Conv, which no shape of its arrays shows; None for other layers."""
    convolution = layer.state["_modules"].get("conv")
    return convolution.state.get("stride") if is_module(convolution) else None


def _check_normalization(transforms: Any) -> None:
    """Raise UserError if images must be prepared in another way than by `IMAGE_MEAN`.

    transforms: the record of torchvision's Compose; None if the file has none.
    """
    if transforms is None:
        return
    try:
        steps = [x.state for x in transforms.state["transforms"] if x.kind.endswith(".Normalize")]
        values = [list(step[key]) for step in steps for key in ("mean", "std")]
    except (AttributeError, KeyError, TypeError):  # not the records of torchvision's transforms
        values = []
    if values != [IMAGE_MEAN, IMAGE_STD]:
        raise UserError(
            f"it normalizes images by {brief(values)}; {IMAGE_MEAN} and {IMAGE_STD} are built here"
        )
