"""What an exported file takes and returns, by its metadata; and what runs one."""

from __future__ import annotations

from collections.abc import Sequence
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


class Kind(NamedTuple):
    """A kind of output.

    Attributes:
        outputs: names in a graph, as the public YOLOv5 has them, with what each tensor means.
        has_nms: it has only what NMS left, at most `most` per image.
    """

    outputs: tuple[tuple[str, str], ...]
    has_nms: bool = False
    runs_here: bool = True
    most: int | None = None


_DETECTION = (
    "(batch, detections, 6): x1, y1, x2, y2 in pixels of the input, score, class; best first, "
    "unused rows are 0"
)
_PLUGIN = "as TensorRT's EfficientNMS returns it"

KINDS = {
    ROWS: Kind((
        ("output0", "(batch, rows, 5 + classes): cx, cy, width, height in pixels of the input, "
            "objectness, class scores"),
    )),
    DETECTIONS: Kind((("output0", _DETECTION),), has_nms=True),
    EFFICIENT: Kind(
        tuple((name, _PLUGIN) for name in ("num_dets", "det_boxes", "det_scores", "det_classes")),
        has_nms=True, runs_here=False,
    ),
    MASK_ROWS: Kind((
        ("output0", "(batch, rows, 5 + classes + prototypes): cx, cy, width, height in pixels of "
            "the input, objectness, class scores, coefficients"),
        ("output1", "(batch, prototypes, height, width): a mask is the sigmoid of their sum by a "
            "row's coefficients, inside its box"),
    )),
    MASKS: Kind((
        ("output0", _DETECTION),
        ("output1", "(batch, detections, height, width): how probable each place of the input is "
            "the object's; 0 outside its box"),
    ), has_nms=True, most=MOST_MASKS),
    LOGITS: Kind((("output0", "(batch, classes): logits, of which softmax makes probabilities"),)),
}  # fmt: skip


def shapes_of(metadata: Metadata) -> tuple[Shape, ...]:
    """Return the shapes of a file's outputs, without the batch."""
    classes, anything = len(metadata.class_names), (None, None, None)
    columns = BOX_COLUMNS + classes if metadata.head == HEAD else None
    shapes: dict[str, tuple[Shape, ...]] = {
        ROWS: ((None, columns),),
        DETECTIONS: ((None, DETECTION_COLUMNS),),
        EFFICIENT: ((1,), (None, 4), (None,), (None,)),
        MASK_ROWS: ((None, None), anything),
        MASKS: ((None, DETECTION_COLUMNS), anything),
        LOGITS: ((classes,),),
    }
    return shapes[metadata.output]


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
    expected = shapes_of(metadata)
    if len(returned) != len(expected):
        number = count(len(returned), "output")
        return f"it returns {number}, and its metadata says {len(expected)}"
    for found, sides in zip(returned, expected, strict=True):
        wanted = batch_size, *sides
        pairs = zip(found, wanted, strict=False)
        if len(found) != len(wanted) or not all(
            None in pair or len({*pair}) == 1 for pair in pairs
        ):
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


def _text(shape: Shape) -> str:
    return "(" + ", ".join("any" if size is None else str(size) for size in shape) + ")"
