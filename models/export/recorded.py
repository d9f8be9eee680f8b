"""Weights -> a model that runs once and is recorded -> the bytes of an ONNX graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from duet.backend import nn, ops
from duet.backend.contract import Tensor
from duet.backend.onnx.model_proto import build_model, name_part
from duet.backend.onnx.nn import name_tensors
from duet.backend.onnx.recording import Size, graph_input
from duet.models.detector import Detector
from duet.models.export.exported_heads import exported_kind, exported_outputs
from duet.models.export.suppressed import detections, masks_in_boxes
from duet.models.stored import detector_of_weights, fold_batch_norm
from duet.utils.errors import UserError
from duet.utils.export.config import ExportConfig
from duet.utils.export.metadata import DETECTION_COLUMNS, DETECTIONS, MASKS, output_names
from duet.utils.weights.checkpoint import Checkpoint

IMAGES = "images"  # the input of the graph, as the public YOLOv5 names it
FREE = {0: "batch", 2: "height", 3: "width"}  # dimensions of the images with --dynamic
NUM_ROWS = "rows"  # the name of their number with --dynamic
BEYOND_HALF = 65_520  # what rounds to infinity in float16
LAYER = "layer_{}"  # what a layer returns, and the beginning of its nodes' names
DECODING, FINISH = "decode", "finish"  # parts of a graph


def recorded_graph(config: ExportConfig, checkpoint: Checkpoint) -> bytes:
    """Return the ONNX graph of the EMA of weights, BatchNorm folded; equal weights, equal bytes."""
    model: Any = detector_of_weights(checkpoint)  # its classes are those of this backend
    fold_batch_norm(model)
    model.eval()  # what only training computes has no place in a graph
    kind = exported_kind(model.head, config.nms)
    free = FREE if config.dynamic else {}
    images = graph_input(IMAGES, (config.batch_size, 3, *config.image_size), "float32", free)
    predicted = predictions(model, images, config.half)
    outputs = finished(kind, predicted, config, images.shape[2:], model.head.num_classes)
    for output, name in zip(outputs, output_names(kind), strict=True):
        output.name = name
    name_part(outputs, FINISH)
    return build_model(outputs, [images], config.opset).SerializeToString(deterministic=True)


def finished(
    kind: str,
    predicted: tuple[Any, ...],
    config: ExportConfig,
    input_size: Sequence[int],
    num_classes: int,
) -> tuple[Any, ...]:
    """Return what a graph with this kind of output returns of what the head predicts."""
    first, *others = predicted
    settings, top = config.suppression, config.top_per_class
    if kind == DETECTIONS:
        return (detections(first, settings, top),)
    if kind == MASKS:
        columns = 5 + num_classes
        found = detections(first[..., :columns], settings, top, first[..., columns:])
        boxes_xyxy, coefficients = found[..., 0:4], found[..., DETECTION_COLUMNS:]
        masks = masks_in_boxes(others[0], coefficients, boxes_xyxy, input_size)
        return found[..., :DETECTION_COLUMNS], masks
    return predicted


def predictions(model: Any, images: Tensor, half: bool) -> tuple[Any, ...]:
    """Return all that the model predicts, float32.

    half: the layers compute in half precision; boxes are decoded in float32, as NMS needs them.
    """
    predicted: tuple[Any, ...] = exported_outputs(model.head, raw_maps(model, images, half))
    first = predicted[0]
    if isinstance(first.shape[1], Size):
        first.shape[1].name = NUM_ROWS
    name_part(predicted, DECODING)
    return predicted


def raw_maps(model: Any, images: Tensor, half: bool) -> tuple[Tensor, ...]:
    """Return the raw maps, in float32."""
    name_tensors(model)
    if not half:
        return run_named(model, images)
    require_half(nn.state_arrays(model))
    layers = nn.place(nn.frozen_copy(model), "cpu", "float16")
    name_tensors(layers)
    raw = run_named(layers, ops.cast(images, "float16"))
    return tuple(ops.cast(level, "float32") for level in raw)


def require_half(arrays: Mapping[str, np.ndarray]) -> None:
    """Raise UserError if a weight is beyond half precision, in which it would be infinite."""
    for name, array in arrays.items():
        largest = np.abs(array).max(initial=0.0, where=np.isfinite(array))
        if largest >= BEYOND_HALF:
            raise UserError(
                f"--half: {name}, BatchNorm folded, has {largest:,.6g}, and half precision ends at "
                "65,504; export it without --half"
            )


def run_named(model: Detector, images: Tensor) -> tuple[Tensor, ...]:
    """Return the raw maps; what a layer returns, and its nodes, are named after its number."""
    output: Any = ()
    for index, output in enumerate(model.run_layers(images)):
        name_part(output if isinstance(output, tuple) else [output], LAYER.format(index))
    return tuple(output)
