"""Weights -> a model that runs once and is recorded -> the bytes of an ONNX graph.

Before: `graph_file.py` chose the backend that records. After: a file, which converters read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from backend import nn, ops
from backend.contract import Tensor
from backend.onnx.model_proto import build_model
from backend.onnx.nn import name_tensors
from backend.onnx.recording import graph_input
from models.detector import Detector
from models.export.letterboxed import (
    Placement,
    boxes_in_image,
    detections_in_image,
    letterboxed,
    rows_in_image,
)
from models.export.suppressed import EFFICIENT_OUTPUTS, detections, efficient_detections
from models.inference.folding import fold_batch_norm
from models.stored import detector_of_weights
from utils.cli.export_config import ExportConfig
from utils.state.checkpoint import Checkpoint

IMAGES, OUTPUT = "images", "output0"  # of the graph, as the public YOLOv5 names them
FREE = (0, 2, 3)  # dimensions of the images with --dynamic
FREE_SIDES = (0, 1)  # of the image with --letterbox
LAYER = "layer_{}"  # the name of what a layer of the model returns


def recorded_graph(config: ExportConfig, checkpoint: Checkpoint) -> bytes:
    """Return the ONNX graph of the EMA of weights, BatchNorm folded; equal weights, equal bytes."""
    model: Any = detector_of_weights(checkpoint)  # its classes are those of this backend
    fold_batch_norm(model)
    name_tensors(model)
    given, images, placement = given_images(config)
    rows = decoded_rows(model, images, config.half)
    outputs = finished(rows, config, placement)
    return build_model(outputs, [given], config.opset).SerializeToString(deterministic=True)


def given_images(config: ExportConfig) -> tuple[Any, Any, Placement | None]:
    """Return the input of the graph, what the network takes of it, and with --letterbox where."""
    if config.letterbox:
        image = graph_input(IMAGES, (*config.image_size, 3), "uint8", FREE_SIDES)
        return image, *letterboxed(image, config.image_size)
    free = FREE if config.dynamic else ()
    images = graph_input(IMAGES, (config.batch_size, 3, *config.image_size), "float32", free)
    return images, images, None


def finished(rows: Any, config: ExportConfig, placement: Placement | None) -> tuple[Any, ...]:
    """Return the outputs of the graph; with --letterbox their boxes are in pixels of the image."""
    if config.efficient_nms:
        number, boxes, *others = efficient_detections(rows, config.suppression)
        if placement:
            boxes = boxes_in_image(boxes, placement)
        return named((number, boxes, *others), EFFICIENT_OUTPUTS)
    if not config.nms:
        return named((rows_in_image(rows, placement) if placement else rows,), (OUTPUT,))
    found = detections(rows, config.suppression, config.top_per_class)
    return named((detections_in_image(found, placement) if placement else found,), (OUTPUT,))


def named(outputs: tuple[Any, ...], names: Sequence[str]) -> tuple[Any, ...]:
    for output, name in zip(outputs, names, strict=True):
        output.name = name
    return outputs


def decoded_rows(model: Detector, images: Tensor, half: bool) -> Any:
    """Return all that the model predicts, (B, N, 5 + C) float32.

    half: the layers compute in half precision; boxes are decoded in float32, as NMS needs them.
    """
    if not half:
        return model.decode(run_named(model, images))
    layers = nn.place(nn.frozen_copy(model), "cpu", "float16")
    raw = run_named(layers, ops.cast(images, "float16"))
    return model.decode(tuple(ops.cast(level, "float32") for level in raw))


def run_named(model: Detector, images: Tensor) -> tuple[Tensor, ...]:
    """Return the raw maps; what each layer before the head returns is named after its number."""
    output: Any = ()
    for index, output in enumerate(model.run_layers(images)):
        if not isinstance(output, tuple):
            output.name = LAYER.format(index)
    return tuple(output)
