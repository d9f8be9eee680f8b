"""Raw maps for the converters of boards: outputs of the head's convolutions, before decoding.

Converters for NPUs take static tensors of four dimensions and few operations; the board's CPU
decodes, as docs/examples/npu shows. The same function runs the model and records its graph.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from duet.backend import nn, ops
from duet.backend.contract import Tensor
from duet.models.detector import Detector
from duet.models.heads.base import Head
from duet.utils.errors import UserError
from duet.utils.export.metadata import BOX_COLUMNS, RAW_FORMS
from duet.utils.optional import import_optional

MAPS, SIGMOID, SPLIT, _ = RAW_FORMS
MOST_DIMENSIONS = 4
# Operations that the published lists of RKNN-Toolkit2, Hailo's and Horizon's compilers, Qualcomm's
# converter and TensorFlow Lite's int8 operators (for Edge TPU) have in common.
ALLOWED = frozenset({
    "Add", "AveragePool", "Clip", "Concat", "Conv", "GlobalAveragePool", "LeakyRelu", "MaxPool",
    "Mul", "Relu", "Resize", "Sigmoid",
})  # fmt: skip


class Part(NamedTuple):
    """A map of one level: its name without the stride, and whether its values are logits."""

    name: str
    values: Tensor  # (B, K, H, W)
    is_logits: bool = True


def maps_by_name(model: Detector, images: Tensor, form: str) -> dict[str, Tensor]:
    """Run a model; return its maps (B, K, H, W) by name, such as classes_8 at stride 8.

    Args:
        form: one of RAW_FORMS; split maps are box, objectness and classes of all anchors.

    Raises:
        UserError: the head has no such form.
    """
    head, is_split = model.head, form.startswith(SPLIT)
    outputs = list(model.run_layers(images))
    features = [outputs[source] for source in model.spec.layers[-1].sources]
    parts = PARTS.get(head.task.name, _refused)(head, features, is_split)
    found: dict[str, Tensor] = {}
    for stride, level in zip(head.strides, parts, strict=True):
        for part in level:
            if form == SIGMOID and not part.is_logits:
                raise UserError(
                    f"--raw {form}: maps of this task also have values that are no logits; "
                    f"use --raw {RAW_FORMS[-1]}"
                )
            sigmoid = part.is_logits and form.endswith(SIGMOID)
            found[f"{part.name}_{stride}"] = ops.sigmoid(part.values) if sigmoid else part.values
    for prototypes in outputs[-1][len(head.strides) :]:
        found["prototypes"] = prototypes
    return found


def _refused(head: Head, features: Sequence[Tensor], is_split: bool) -> Iterator[list[Part]]:
    raise UserError("--raw: the file of this task returns logits already; leave it out")


def _cells(head: Any, features: Sequence[Tensor], is_split: bool) -> Iterator[list[Part]]:
    """Yield the parts of anchors' rows, (B, A * K, H, W) each, anchor by anchor."""
    classes = BOX_COLUMNS + head.num_classes
    ends = {"box": BOX_COLUMNS - 1, "objectness": BOX_COLUMNS, "classes": classes}
    if head.num_added:
        ends["coefficients"] = classes + head.num_added
    for convolution, x in zip(head.m, features, strict=True):
        if not is_split:
            yield [Part("maps", convolution(x), is_logits=not head.num_added)]
            continue
        arrays = nn.state_arrays(convolution)
        starts = (0, *ends.values())
        yield [
            Part(name, _rows(head, arrays, slice(start, end))(x), name != "coefficients")
            for (name, end), start in zip(ends.items(), starts, strict=False)
        ]


def _rows(head: Any, arrays: dict[str, np.ndarray], rows: slice) -> Any:
    """Return the convolution of some rows of every anchor: splitting weights needs no operation."""
    chosen = {
        name: array.reshape(head.num_anchors, head.num_outputs, *array.shape[1:])[:, rows]
        for name, array in arrays.items()
    }
    chosen = {name: array.reshape(-1, *array.shape[2:]) for name, array in chosen.items()}
    outputs, inputs = chosen["weight"].shape[:2]
    convolution = nn.Conv2d(inputs, outputs, 1)
    nn.load_state_arrays(convolution, chosen)
    return convolution


def _edges(head: Any, features: Sequence[Tensor], is_split: bool) -> Iterator[list[Part]]:
    """Yield the parts of an anchor-free head: distributions of edges, and classes."""
    for edges, classes, x in zip(head.cv2, head.cv3, features, strict=True):
        box, scores = edges(x), classes(x)
        if is_split:
            yield [Part("box", box, is_logits=False), Part("classes", scores)]
        else:
            yield [Part("maps", ops.cat([box, scores], dim=1), is_logits=False)]


PARTS: dict[str, Callable[[Any, Sequence[Tensor], bool], Iterator[list[Part]]]] = {
    "detect": _cells,
    "segment": _cells,
    "detect-anchor-free": _edges,
}


def raw_metadata(head: Any, form: str) -> dict[str, object]:
    """Return what a decoder needs: the form, strides and, in pixels, anchors [w, h, ...]."""
    found: dict[str, Any] = {"form": form, "strides": list(head.strides), "anchors": []}
    if hasattr(head, "anchors"):
        pixels = ops.to_numpy(head.anchors) * np.reshape(head.strides, (-1, 1, 1))
        found["anchors"] = pixels.reshape(len(head.strides), -1).tolist()
    return found


def require_allowed(graph: Any) -> None:
    """Raise UserError for a graph (ONNX's ModelProto) that converters of boards refuse."""
    onnx: Any = import_optional("onnx", "--raw")
    shaped = onnx.shape_inference.infer_shapes(graph, strict_mode=True).graph
    if others := sorted({node.op_type for node in shaped.node} - ALLOWED):
        raise UserError(
            f"--raw: the model has the operations {', '.join(others)}, which converters of boards "
            f"do not all take; accepted: {', '.join(sorted(ALLOWED))}. Export it without --raw"
        )
    for value in (*shaped.value_info, *shaped.output):
        sizes = value.type.tensor_type.shape.dim
        assert len(sizes) <= MOST_DIMENSIONS and all(size.dim_value for size in sizes), value.name
