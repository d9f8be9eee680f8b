"""The metadata of an ONNX file of the public YOLOv5 exporter: only stride and names.

They are Python's literals as texts, "{0: 'person', 1: 'bicycle'}", which are YAML too. All else is
read from the graph; a trial run shows whether it is true.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from utils.errors import UserError, brief
from utils.export.metadata import FLOATS, LOGITS, MASK_ROWS, NORMALIZED, ROWS, Metadata, checked
from utils.files.yaml import parse_yaml

EXAMPLE, EXAMPLE_OF_CLASSES = 640, 224  # pixels, where the size is free
LONGEST = 1 << 20  # characters of a text


class Form(NamedTuple):
    """The form of a task's files; `example` is the side of an image, where that is free."""

    task: str
    head: str
    output: str
    image: str = FLOATS
    example: int = EXAMPLE


FORMS = {  # by the dimensions of the outputs
    (3,): Form("detect", "Detect", ROWS),
    (3, 4): Form("segment", "Segment", MASK_ROWS),
    (2,): Form("classify", "Classify", LOGITS, NORMALIZED, EXAMPLE_OF_CLASSES),
}


def is_foreign(texts: Mapping[str, str]) -> bool:
    """Return whether metadata are those of the public exporter, not ours."""
    return "names" in texts and "class_names" not in texts


def foreign_metadata(
    texts: Mapping[str, str],
    shape: Sequence[int | None],
    kind: str,
    outputs: Sequence[Sequence[int | None]],
    last: str = "",
) -> Metadata:
    """Return the metadata of such a file in our form.

    Args:
        shape, kind: of the input, with None for a free size, and its NumPy type.
        outputs: their shapes.
        last: the operator that makes the first of them.

    Raises:
        UserError: a text that is wrong, or a graph that is no model of the public YOLOv5.
    """
    names = _names(_value("names", texts["names"]))
    stride = _value("stride", texts.get("stride", "32"))
    form = FORMS.get(tuple(map(len, outputs)))
    if form is None or len(shape) != 4:
        raise UserError(
            f"it takes {brief(list(shape))}, and it returns {brief(list(map(list, outputs)))}; a "
            "model of the public YOLOv5 takes images (B, 3, H, W) and returns rows "
            "(B, N, 5 + classes), these and prototypes (B, M, h, w), or logits (B, classes)"
        )
    if form.output == LOGITS and last == "Softmax":
        raise UserError("it ends in Softmax; a classifier of the public YOLOv5 returns logits")
    task = str(_value("task", texts["task"])) if "task" in texts else form.task
    if task != form.task:
        raise UserError(f"it is for the task {brief(task)}, and its graph is made to {form.task}")
    batch, channels, height, width = shape
    free = height is None and width is None
    if channels != 3 or (height is None) != (width is None) or (free and batch is not None):
        raise UserError(
            f"it takes {list(shape)}; either all sizes must be fixed, or all but 3 free"
        )
    side = form.example
    if isinstance(stride, int) and stride > 0:
        side = -(-side // stride) * stride
    return checked(
        {
            "class_names": names,
            "stride": stride,
            "image_size": [height or side, width or side],
            "batch_size": batch or 1,
            "dynamic": free,
            "image": form.image,
            "output": form.output,
            "precision": kind or "float32",
            "head": form.head,
            "suppression": {},
        }
    )


def _value(name: str, text: str) -> Any:
    if len(text) > LONGEST:
        raise UserError(f"its metadata has {name} of {len(text):,} characters")
    try:
        return parse_yaml(text.encode("utf-8", "surrogatepass"))
    except ValueError as error:
        raise UserError(f"its metadata has {name} {brief(text)}: {error}") from error


def _names(value: Any) -> list[Any]:
    """Return class names in the order of their numbers, of a list or a mapping."""
    if isinstance(value, dict) and sorted(map(str, value)) == sorted(map(str, range(len(value)))):
        return [value.get(number, value.get(str(number))) for number in range(len(value))]
    if isinstance(value, list):
        return value
    raise UserError(f"its metadata has names {brief(value)}; a name for each class is needed")
