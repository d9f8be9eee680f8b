"""What a file returns, by the kind of output that its metadata names: its tensors and their shapes.

Before: `metadata.py`. After: `onnx_file.py` describes a file with it, `shapes.py` checks one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from utils.runtimes.metadata import (
    DETECTIONS,
    EFFICIENT,
    LOGITS,
    MASK_ROWS,
    MASKS,
    ROWS,
    Metadata,
)

Shape = Sequence[int | None]  # None: free, or not known
BOX_COLUMNS, DETECTION_COLUMNS = 5, 6  # cx, cy, w, h, objectness; x1, y1, x2, y2, score, class
MOST_MASKS = 1024  # of an image: each costs its own prototype in a file with NMS
HEAD = "Detect"  # the rows of heads that this project does not have may have other columns


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
    """Return the names of the outputs of a graph."""
    return tuple(output.name for output in KINDS[kind].outputs)


def shapes_returned(metadata: Metadata) -> tuple[Shape, ...]:
    """Return the shape of each output of a file."""
    batch = None if metadata.dynamic else metadata.batch_size
    return tuple((batch, *output.sides(metadata)) for output in KINDS[metadata.output].outputs)
