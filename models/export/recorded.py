"""Record a model of weights as an ONNX graph, by running it once under backend/onnx.

With --nms the graph has the NMS of `utils/evaluation/nms.py` by standard operators, each box in its
best class only, and the masks of `utils/data/masks/assemble.py` in prototype size.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from duet.backend import nn
from duet.backend.onnx import ops
from duet.backend.onnx.model_proto import build_model, fold_constants
from duet.backend.onnx.nn import name_tensors
from duet.backend.onnx.recording import (
    Size,
    Tensor,
    apply,
    apply_for_several,
    constant,
    elementwise,
    graph_input,
    size_tensor,
)
from duet.models.export.exported import exported_kind, form_of
from duet.models.export.raw import maps_by_name, require_allowed
from duet.models.stored import detector_of_weights, fold_batch_norm
from duet.utils.errors import UserError
from duet.utils.export.config import ExportConfig
from duet.utils.export.metadata import (
    BOX_COLUMNS,
    DETECTION_COLUMNS,
    DETECTIONS,
    MASKS,
    output_names,
)
from duet.utils.geometry.detections import SuppressionSettings
from duet.utils.weights.checkpoint import Checkpoint

IMAGES = "images"  # the input of the graph, as the public YOLOv5 names it
FREE = {0: "batch", 2: "height", 3: "width"}  # dynamic dimensions with --dynamic
NUM_ROWS = "rows"  # name of the dynamic number of rows
BEYOND_HALF = 65_520  # smallest value that rounds to infinity in float16


def recorded_graph(config: ExportConfig, checkpoint: Checkpoint) -> bytes:
    """Return the EMA as ONNX bytes, BatchNorm folded; equal weights give equal bytes."""
    model: Any = detector_of_weights(checkpoint)  # its modules belong to this backend
    fold_batch_norm(model)
    model.eval()  # record the inference path only
    free = FREE if config.dynamic else {}
    images = graph_input(IMAGES, (config.batch_size, 3, *config.image_size), "float32", free)
    outputs = named_outputs(model, images, config)
    for name, output in outputs.items():
        output.name = name
    tensors = tuple(outputs.values())
    fold_constants(tensors)
    graph = build_model(tensors, [images], config.opset)
    if config.raw:
        require_allowed(graph)
    return graph.SerializeToString(deterministic=True)


def named_outputs(model: Any, images: Tensor, config: ExportConfig) -> dict[str, Any]:
    name_tensors(model)
    if config.raw:
        return maps_by_name(model, images, config.raw)
    head, kind = model.head, exported_kind(model.head, config.nms)
    maps = maps_in_half(model, images) if config.half else model(images)
    predicted: tuple[Any, ...] = form_of(head).outputs(head, maps)  # float32, as NMS requires
    first, *others = predicted
    if isinstance(first.shape[1], Size):
        first.shape[1].name = NUM_ROWS
    if kind in (DETECTIONS, MASKS):
        num_others = first.shape[2] - BOX_COLUMNS - head.num_classes
        first = detections(first, config.suppression, config.top_per_class, num_others)
    if kind == MASKS:
        boxes_xyxy, coefficients = first[..., 0:4], first[..., DETECTION_COLUMNS:]
        others = [masks_in_boxes(others[0], coefficients, boxes_xyxy, images.shape[2:])]
        first = first[..., :DETECTION_COLUMNS]
    return dict(zip(output_names(kind), (first, *others), strict=True))


def maps_in_half(model: Any, images: Tensor) -> list[Tensor]:
    """Return the head's maps, computed in half precision, as float32."""
    require_half(nn.state_arrays(model))
    layers = nn.place(nn.frozen_copy(model), "cpu", "float16")
    return [ops.cast(level, "float32") for level in layers(ops.cast(images, "float16"))]


def require_half(arrays: Mapping[str, np.ndarray]) -> None:
    """Raise UserError for a weight that would be infinite in half precision."""
    for name, array in arrays.items():
        largest = np.abs(array).max(initial=0.0, where=np.isfinite(array))
        if largest >= BEYOND_HALF:
            raise UserError(
                f"--half: {name} (BatchNorm folded) has the value {largest:,.6g}, but half "
                "precision ends at 65,504; export without --half"
            )


# OpenVINO removes boxes with an IoU equal to the threshold: at 0, all but one.
LEAST_IOU = float(np.finfo(np.float32).tiny)


def detections(
    rows: Tensor, settings: SuppressionSettings, top_per_class: int, num_others: int = 0
) -> Tensor:
    """Return each image's detections, (B, K, 6 + M) float32, with K = `max_detections`.

    x1, y1, x2, y2, score, class, others; highest score first, then by row. Unused rows are 0.

    Args:
        rows: (B, N, 5 + C + M) float32, per image as in `non_max_suppression`, and other values.
        top_per_class: maximum detections per class; unused with `class_agnostic`.
        num_others: M.
    """
    batch, number, width = rows.shape
    columns = width - num_others
    half_size, centre = rows[..., 2:4] / 2.0, rows[..., 0:2]
    boxes_xyxy = ops.cat([centre - half_size, centre + half_size], dim=2)
    # Of equal values TopK returns the first, as NumPy's argmax does.
    scores_of_best = best(rows[..., BOX_COLUMNS:columns] * rows[..., 4:5], 1)
    scores, class_index = (x.reshape(batch, number) for x in scores_of_best)
    # Not left to NonMaxSuppression: runtimes differ for scores equal to the threshold.
    scores = _where(scores > settings.confidence_threshold, scores)
    by_class, limit = scores.reshape(batch, 1, number), settings.max_detections
    if not settings.class_agnostic:
        chosen, limit = one_hot(class_index, columns - BOX_COLUMNS), top_per_class
        by_class = chosen * by_class
    kept, index = best(
        kept_scores(boxes_xyxy, scores, by_class, limit, settings), settings.max_detections
    )
    numbers = (x.reshape(batch, number, 1) for x in (scores, ops.cast(class_index, "float32")))
    others = [rows[..., columns:]] if num_others else []
    values = ops.cat([boxes_xyxy, *numbers, *others], dim=2)
    return _where((kept > 0.0).reshape(*kept.shape, 1), _take_rows(values, index))


def one_hot(index: Tensor, num_classes: int) -> Tensor:
    """Return 1 in the class of each row and 0 elsewhere, (B, C, N) float32, of indices (B, N)."""
    batch, number = index.shape
    inputs = index, constant(np.array(num_classes)), constant(np.array([0, 1], np.float32))
    return apply("OneHot", inputs, (batch, num_classes, number), "float32", axis=1)


def kept_scores(
    boxes_xyxy: Tensor, scores: Tensor, by_class: Tensor, limit: int, settings: SuppressionSettings
) -> Tensor:
    """Return the scores, (B, N), of the boxes that NMS keeps, else 0."""
    limits = threshold_of_iou(settings.iou_threshold), settings.confidence_threshold
    numbers = np.array([limit], np.int64), *np.array(limits, np.float32).reshape(2, 1)
    inputs = boxes_xyxy, by_class, *map(constant, numbers)
    selected = apply("NonMaxSuppression", inputs, (Size(0), 3), "int64")
    places = apply("Gather", (selected, constant(np.array([0, 2]))), (Size(0), 2), "int64", axis=1)
    kept = apply("GatherND", (scores, places), (Size(0),), "float32")
    return apply("ScatterND", (scores * 0.0, places, kept), scores.shape, "float32")


def threshold_of_iou(iou_threshold: float) -> float:
    """Return the float32 threshold with which float32 IoUs are decided as in `non_max_suppression`.

    That compares float64 IoUs with the threshold rounded to float32. 0.45 is rounded down, so an
    IoU of 0.45 exceeds it; in float32 both would be equal and the box would stay.
    """
    rounded = np.float32(iou_threshold)
    if float(rounded) < iou_threshold:
        rounded = np.nextafter(rounded, np.float32(0))
    return max(float(rounded), LEAST_IOU)


def best(scores: Tensor, number: int) -> tuple[Tensor, Tensor]:
    """Return the highest scores along the last dimension and their indices, padded with 0 scores.

    Equal scores stay in order, except in OpenVINO 2026.4, which orders them arbitrarily.
    """
    *front, length = scores.shape
    shape = (*front, number)
    if isinstance(length, Size) or length < number:
        pads = constant(np.array([0] * (2 * scores.ndim - 1) + [number]))
        scores = apply("Pad", (scores, pads), (*front, length + number), scores.dtype)
    values, index = apply_for_several(
        "TopK", (scores, constant(np.array([number]))), [(shape, scores.dtype), (shape, "int64")]
    )
    return values, index


def masks_in_boxes(
    prototypes: Tensor, coefficients: Tensor, boxes_xyxy: Tensor, input_size: Sequence[int]
) -> Tensor:
    """Return mask probabilities, (B, K, h, w) float32; 0 outside the object's box.

    Args:
        prototypes: (B, M, h, w) float32.
        coefficients: (B, K, M) float32.
        boxes_xyxy: (B, K, 4) float32, input pixels; an empty box has an empty mask.
        input_size: (H, W) of the input.
    """
    batch, number, height, width = prototypes.shape
    flat = prototypes.reshape(batch, number, height * width)
    found = coefficients.shape[1]
    scores = ops.sigmoid(ops.matmul(coefficients, flat)).reshape(batch, found, height, width)
    cells = ops.cells(height, width, prototypes)[0]  # (1, h, w, 2): column, row
    for axis, (side, pixels) in enumerate(((width, input_size[1]), (height, input_size[0]))):
        scale = _float(side) / _float(pixels)
        places = cells[..., axis].reshape(1, 1, height, width)
        first, end = (
            (boxes_xyxy[..., column] * scale).reshape(batch, found, 1, 1)
            for column in (axis, axis + 2)
        )
        scores = _where(elementwise("And", first <= places, end > places), scores)
    return scores


def _take_rows(table: Tensor, index: Tensor) -> Tensor:
    """Return rows of (B, N, D) by index (B, K), (B, K, D); the last one for an index from N on."""
    batch, number = index.shape
    last = size_tensor(table.shape[1] - 1)
    inside = apply("Min", (index, last), index.shape, "int64").reshape(batch, number, 1)
    shape = (batch, number, table.shape[2])
    return apply("GatherND", (table, inside), shape, table.dtype, batch_dims=1)


def _where(condition: Tensor, x: Tensor) -> Tensor:
    """Return x where a condition holds, else 0."""
    return apply("Where", (condition, x, constant(np.zeros((), np.float32))), x.shape, x.dtype)


def _float(size: int) -> Tensor:
    """Return a size as a float32 tensor, (1,)."""
    return ops.cast(size_tensor(size), "float32")
