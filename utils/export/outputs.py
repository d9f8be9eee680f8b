"""What an exported file takes and returns, by its metadata; and what runs one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from backend.words import count
from utils.export.metadata import (
    DETECTIONS,
    EFFICIENT,
    LOGITS,
    MASK_ROWS,
    MASKS,
    PIXELS,
    ROWS,
    Metadata,
)

Shape = Sequence[int | None]  # None: free, or not known
Outputs = tuple[np.ndarray, ...]  # of a file, each (B, ...) float32
BOX_COLUMNS, DETECTION_COLUMNS = 5, 6  # cx, cy, w, h, objectness; x1, y1, x2, y2, score, class
MOST_MASKS = 1024  # per image: each costs its own prototype in a file with NMS
HEAD = "Detect"  # rows of other heads may have other columns


class Runtime(Protocol):
    """An exported file, loaded. Threads may share one.

    Attributes:
        name: of the runtime, with its version and device, for the log.
    """

    metadata: Metadata
    name: str

    def __call__(self, images: np.ndarray) -> Outputs:
        """Run the file.

        Args:
            images: what `metadata.image` says: (B, 3, H, W) float32 in [0, 1], of the file's size
                and batch unless it is dynamic; or one image (H, W, 3) uint8.

        Returns:
            What `metadata.output` says, float32, in that order.
        """


class Output(NamedTuple):
    """A tensor that a file returns."""

    name: str  # in a graph, as the public YOLOv5 has it
    meaning: str  # for people who look at the graph
    sides: Callable[[Metadata], Shape]  # behind the batch


class Kind(NamedTuple):
    """A kind of output; `has_nms`: it has only what NMS left, at most `most` per image."""

    outputs: tuple[Output, ...]
    has_nms: bool = False
    runs_here: bool = True
    most: int | None = None


def _row(metadata: Metadata) -> Shape:
    columns = BOX_COLUMNS + len(metadata.class_names)
    return None, columns if metadata.head == HEAD else None


def _detection(metadata: Metadata) -> Shape:
    return None, DETECTION_COLUMNS


_DETECTION = (
    "(batch, detections, 6): x1, y1, x2, y2 in pixels of the input, score, class; best first, "
    "unused rows are 0"
)
_PLUGIN = "as TensorRT's EfficientNMS returns it"

KINDS = {
    ROWS: Kind((
        Output("output0", "(batch, rows, 5 + classes): cx, cy, width, height in pixels of the "
            "input, objectness, class scores", _row),
    )),
    DETECTIONS: Kind((Output("output0", _DETECTION, _detection),), has_nms=True),
    EFFICIENT: Kind((
        Output("num_dets", _PLUGIN, lambda metadata: (1,)),
        Output("det_boxes", _PLUGIN, lambda metadata: (None, 4)),
        Output("det_scores", _PLUGIN, lambda metadata: (None,)),
        Output("det_classes", _PLUGIN, lambda metadata: (None,)),
    ), has_nms=True, runs_here=False),
    MASK_ROWS: Kind((
        Output("output0", "(batch, rows, 5 + classes + prototypes): cx, cy, width, height in "
            "pixels of the input, objectness, class scores, coefficients",
            lambda metadata: (None, None)),
        Output("output1", "(batch, prototypes, height, width): a mask is the sigmoid of their sum "
            "by a row's coefficients, inside its box", lambda metadata: (None, None, None)),
    )),
    MASKS: Kind((
        Output("output0", _DETECTION, _detection),
        Output("output1", "(batch, detections, height, width): how probable each place of the "
            "input is the object's; 0 outside its box",
            lambda metadata: (None, None, None)),
    ), has_nms=True, most=MOST_MASKS),
    LOGITS: Kind((
        Output("output0", "(batch, classes): logits, of which softmax makes probabilities",
            lambda metadata: (len(metadata.class_names),)),
    )),
}  # fmt: skip


def output_names(kind: str) -> tuple[str, ...]:
    """Return the names of a graph's outputs."""
    return tuple(output.name for output in KINDS[kind].outputs)


def example_images(metadata: Metadata) -> np.ndarray:
    """Return noise in the shape and type that a file takes; of a dynamic one, a single image."""
    height, width = metadata.image_size
    if metadata.image == PIXELS:
        return noise((height, width, 3))
    return noise((1 if metadata.dynamic else metadata.batch_size, 3, height, width))


def noise(shape: Sequence[int]) -> np.ndarray:
    """Return random numbers: float32 in [0, 1] for a batch, uint8 for one image (H, W, 3)."""
    random = np.random.default_rng(0)
    if len(shape) == 3:
        return random.integers(0, 256, shape, np.uint8)
    return random.random(shape, np.float32)


def fault_of_returned(metadata: Metadata, returned: Sequence[Shape], batch_size: int) -> str:
    """Return what is wrong with the shapes that a file returned for a batch; "" if nothing is."""
    kind = KINDS[metadata.output]
    if len(returned) != len(kind.outputs):
        number = count(len(returned), "output")
        return f"it returns {number}, and its metadata says {len(kind.outputs)}"
    for found, output in zip(returned, kind.outputs, strict=True):
        wanted = batch_size, *output.sides(metadata)
        if not _agree(found, wanted):
            return f"it returns {_text(found)}, and its metadata says {_text(wanted)}"
    if metadata.output in (MASK_ROWS, MASKS):
        return _fault_of_masks(metadata, *returned)
    return ""


def _fault_of_masks(metadata: Metadata, rows: Shape, masks: Shape) -> str:
    """Return what is wrong unless there is a mask per detection, or a coefficient per prototype."""
    number, classes = masks[1], len(metadata.class_names)
    if 0 in masks:
        return f"it returns {_text(masks)}, of which no mask can be made"
    if metadata.output == MASKS:
        same = rows[1] == number
        return "" if same else f"it returns {_text(rows)} with masks {_text(masks)}"
    if rows[2] == BOX_COLUMNS + classes + (number or 0):
        return ""
    return (
        f"it returns rows of {rows[2]} numbers, but {count(classes, 'class', 'classes')} and "
        f"{count(number or 0, 'prototype')} need {BOX_COLUMNS + classes + (number or 0)}"
    )


def _agree(found: Shape, expected: Shape) -> bool:
    return len(found) == len(expected) and all(
        None in pair or pair[0] == pair[1] for pair in zip(found, expected, strict=True)
    )


def _text(shape: Shape) -> str:
    return "(" + ", ".join("any" if size is None else str(size) for size in shape) + ")"
