"""Weights -> a model that runs once and is recorded -> the bytes of an ONNX graph.

Before: `graph_file.py` chose the backend that records. After: a file, which converters read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from backend import nn, ops
from backend.contract import Tensor
from backend.onnx.model_proto import build_model, name_part
from backend.onnx.nn import name_tensors
from backend.onnx.recording import Size, graph_input
from models.detector import Detector
from models.export.by_layer import LAYER
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
from utils.errors import UserError
from utils.state.checkpoint import Checkpoint

IMAGES, OUTPUT = "images", "output0"  # of the graph, as the public YOLOv5 names them
FREE = {0: "batch", 2: "height", 3: "width"}  # dimensions of the images with --dynamic
FREE_SIDES = {0: "height", 1: "width"}  # of the image with --letterbox
ROWS = "rows"  # the name of their number with --dynamic
BEYOND_HALF = 65_520  # what rounds to infinity in float16
LETTERBOX, DECODING, FINISH = "letterbox", "decode", "finish"  # parts of a graph


def recorded_graph(config: ExportConfig, checkpoint: Checkpoint) -> bytes:
    """Return the ONNX graph of the EMA of weights, BatchNorm folded; equal weights, equal bytes."""
    model: Any = detector_of_weights(checkpoint)  # its classes are those of this backend
    fold_batch_norm(model)
    given, images, placement = given_images(config)
    rows = decoded_rows(model, images, config.half)
    outputs = finished(rows, config, placement)
    return build_model(outputs, [given], config.opset).SerializeToString(deterministic=True)


def given_images(config: ExportConfig) -> tuple[Any, Any, Placement | None]:
    """Return the input of the graph, what the network takes of it, and with --letterbox where."""
    if config.letterbox:
        image = graph_input(IMAGES, (*config.image_size, 3), "uint8", FREE_SIDES)
        images, placement = letterboxed(image, config.image_size)
        name_part([images], LETTERBOX)
        return image, images, placement
    free = FREE if config.dynamic else {}
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
    name_part(outputs, FINISH)
    return outputs


def decoded_rows(model: Any, images: Tensor, half: bool) -> Any:
    """Return all that the model predicts, (B, N, 5 + C) float32.

    half: the layers compute in half precision; boxes are decoded in float32, as NMS needs them.
    """
    raw = raw_maps(model, images, half)
    rows: Any = model.decode(raw)
    if isinstance(rows.shape[1], Size):
        rows.shape[1].name = ROWS
    name_part([rows], DECODING)
    return rows


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
