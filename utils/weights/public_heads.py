"""Reconstruct the heads of public models from their records and arrays."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from duet.utils.activation import DEFAULT_ACTIVATION
from duet.utils.errors import UserError, brief
from duet.utils.files.json_files import Document
from duet.utils.files.model_yamls import PUBLIC_MODELS, block_of, shipped_model, to_plain
from duet.utils.files.yaml_files import read_yaml
from duet.utils.weights.modules import CLASSIFIER, activation_of, class_name, is_module
from duet.utils.weights.pickle_reader import ANCHOR_FREE_ONLY, OTHER_PACKAGE, Record
from duet.utils.weights.tensors import Contents, StoredArray, is_tensor


def children(module: Any) -> list[Record]:
    inside = module.state["_modules"].values() if is_module(module) else ()
    return [part for part in inside if is_module(part)]


# Of the ultralytics package: YOLOv5u and YOLOv8, whose head is called Detect there.
ANCHOR_FREE, ANCHOR_FREE_THERE = "DetectAnchorFree", "Detect"
ANCHOR_FREE_LAYERS = {"Conv", "C2f", "C3", "SPPF", "Upsample", "Concat", ANCHOR_FREE_THERE}
DISTANCES = 16
# Weight of the first convolution of the class branch, in all supported models.
CLASS_BRANCH = "cv3.0.0.conv.weight"
MULTIPLES = ("depth_multiple", "width_multiple")


def anchor_free_document(model: Record, layers: list[Record], names: Document) -> Document:
    """Return the model YAML of a model, with the block of our head; UserError for others.

    names: names of the model's arrays.
    """
    head, kinds = layers[-1], [class_name(layer) for layer in layers]
    branch = f"model.{len(layers) - 1}.{CLASS_BRANCH}"
    is_known = kinds[-1] == ANCHOR_FREE_THERE and ANCHOR_FREE_LAYERS.issuperset(kinds)
    if not is_known or head.state.get("reg_max") != DISTANCES or branch not in names:
        raise UserError(f"it holds {ANCHOR_FREE_ONLY}")
    own = model.state.get("yaml")
    if not isinstance(own, dict) or not own.keys() >= {"backbone", "head"}:
        raise UserError(f"its {class_name(model)} describes no model (attribute yaml)")
    document = to_plain(own)
    limit, found = _scale_of(document), {"nc": head.state.get("nc")}
    found |= {key: document.get(key) for key in MULTIPLES}
    for part in ("backbone", "head"):
        lines = document[part] if isinstance(document[part], list) else []
        found[part] = [_limited(line, limit) for line in lines]
    for key, there in (("act", "activation"), ("ch", "channels")):
        if document.get(there) not in (None, "", 3):
            found[key] = document[there]
    last = found["head"][-1] if found["head"] else None
    if not isinstance(last, list) or last[2:3] != [ANCHOR_FREE_THERE]:
        raise UserError(
            f"its last layer is {ANCHOR_FREE_THERE}; its model YAML has {brief(last)}, which "
            "cannot be built"
        )
    found["head"][-1] = [last[0], 1, ANCHOR_FREE, ["nc"]]
    return found


def _scale_of(document: dict[str, object]) -> Any:
    """Set the multiples of a document's scale; return the scale's channel limit, or None."""
    match document:
        case {"scale": str(name), "scales": {**scales}}:
            match scales.get(name):
                case [depth, width, limit]:
                    document |= dict(zip(MULTIPLES, (depth, width), strict=True))
                    return limit
    return None


def _limited(line: object, limit: object) -> Any:
    """Limit the channels of a line [from, number, module, [channels, ...]], before the multiple."""
    match line:
        case [source, number, str(block), [int(channels), *others]] if block != "Concat":
            if isinstance(limit, int):
                return [source, number, block, [min(channels, limit), *others]]
    return line


ANCHORED = "Detect", "Segment"
MAX_LEVELS, MAX_ANCHORS = 8, 256
# ImageNet mean and deviation (RGB, in [0, 1]), used by public classifiers.
IMAGE_MEAN, IMAGE_STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def describe(
    model: Record, stored: Mapping[str, StoredArray], contents: Contents
) -> tuple[Document, tuple[int, ...]]:
    """Return a model's YAML and the head's strides, () for none; UserError if unsupported."""
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
) -> Document:
    """Return the model's own YAML with the anchors of the head's buffer."""
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
    value = head.state.get("stride")
    strides = contents.read_tensor(value).array.reshape(-1) if is_tensor(value) else np.zeros(0)
    within = np.isfinite(strides) & (strides >= 1) & (strides <= 512)
    if not 1 <= strides.size <= MAX_LEVELS or not within.all():
        raise UserError("its head has no strides")
    return tuple(int(stride) for stride in strides)


def _anchors_in_pixels(stored: StoredArray | None, strides: tuple[int, ...]) -> list[list[float]]:
    anchors = np.zeros(0) if stored is None else stored.array
    if anchors.ndim != 3 or len(anchors) != len(strides) or anchors.size > MAX_ANCHORS:
        raise UserError(f"its head has no anchors of shape (levels, A, 2) for strides {strides}")
    pixels = anchors.astype(np.float64) * np.reshape(strides, (-1, 1, 1))
    return pixels.reshape(len(strides), -1).tolist()


def classifier_document(
    model: Record, layers: list[Record], stored: Mapping[str, StoredArray]
) -> Document:
    """Return the public classifier's YAML with the multiples of these layers; files have none.

    The last backbone convolution has 1,024 channels times the width multiple, and the longest C3
    has 9 bottlenecks times the depth multiple.
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


def _strides_of(layer: Record) -> object:
    """Return the strides of a Conv, which its arrays do not show; None for other layers."""
    convolution = layer.state["_modules"].get("conv")
    return convolution.state.get("stride") if is_module(convolution) else None


def _check_normalization(transforms: Any) -> None:
    """Raise UserError if torchvision's transforms, if any, normalize differently from ours."""
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
