"""The metadata of an ONNX file of the public YOLOv5 exporter: only stride and names.

They are Python's literals as texts, "{0: 'person', 1: 'bicycle'}", which are YAML too. All else is
read from the graph. Before: `onnx_reading.py`. After: whoever runs the file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from backend.words import count
from utils.errors import UserError, brief
from utils.files.yaml import parse_yaml
from utils.runtimes.metadata import (
    FLOATS,
    LOGITS,
    MASK_ROWS,
    NORMALIZED,
    ROWS,
    Metadata,
    checked,
)

EXAMPLE, EXAMPLE_OF_CLASSES = 640, 224  # pixels, where the size is free
LONGEST = 1 << 20  # characters of a text


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
    form = _form_of([len(output) for output in outputs] if len(shape) == 4 else [])
    if form is None:
        raise UserError(
            f"it takes {brief(list(shape))}, and it returns {brief(list(map(list, outputs)))}; a "
            "model of the public YOLOv5 takes images (B, 3, H, W) and returns rows "
            "(B, N, 5 + classes), these and prototypes (B, M, h, w), or logits (B, classes)"
        )
    form.check(outputs, len(names), last)
    if (task := _task(texts)) not in ("", form.task):
        raise UserError(f"it is for the task {brief(task)}, and its graph is made to {form.task}")
    batch, channels, height, width = shape
    free = height is None and width is None
    if channels != 3 or (height is None) != (width is None) or (free and batch is not None):
        raise UserError(
            f"it takes {list(shape)}; either all sizes must be fixed, or all but 3 free"
        )
    example = form.example
    side = -(-example // stride) * stride if isinstance(stride, int) and stride > 0 else example
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
        }
    )


class Form(NamedTuple):
    """The form of a task's files.

    Attributes:
        task, head: as we name them.
        dimensions: how many each output has.
        example: side of an image, where that is free.
        check: takes the shapes of the outputs, the number of classes, and the last operator.
    """

    task: str
    head: str
    output: str
    dimensions: tuple[int, ...]
    check: Callable[[Sequence[Sequence[int | None]], int, str], None]
    image: str = FLOATS
    example: int = EXAMPLE


def _check_rows(outputs: Sequence[Sequence[int | None]], classes: int, last: str) -> None:
    columns = outputs[0][2]
    if columns not in (None, 5 + classes):
        raise UserError(
            f"it returns rows of {columns} numbers, of which "
            f"{count(classes, 'class', 'classes')} need {5 + classes}: it is no detector of "
            "the public YOLOv5"
        )


def _check_mask_rows(outputs: Sequence[Sequence[int | None]], classes: int, last: str) -> None:
    columns, masks = outputs[0][2], outputs[1][1]
    if masks is None or columns not in (None, 5 + classes + masks):
        raise UserError(
            f"it returns rows of {columns} numbers and {masks} prototypes; with "
            f"{count(classes, 'class', 'classes')} rows need 5, one for each class, and one for "
            "each prototype: it is no segmentation model of the public YOLOv5"
        )


def _check_logits(outputs: Sequence[Sequence[int | None]], classes: int, last: str) -> None:
    if outputs[0][1] not in (None, classes) or last == "Softmax":
        raise UserError(
            f"it returns {outputs[0][1]} numbers by {last or 'no operator'} for "
            f"{count(classes, 'class', 'classes')}; a classifier of the public YOLOv5 returns a "
            "logit for each, without Softmax"
        )


FORMS = (
    Form("detect", "Detect", ROWS, (3,), _check_rows),
    Form("segment", "Segment", MASK_ROWS, (3, 4), _check_mask_rows),
    Form("classify", "Classify", LOGITS, (2,), _check_logits, NORMALIZED, EXAMPLE_OF_CLASSES),
)


def _form_of(dimensions: Sequence[int]) -> Form | None:
    return next((form for form in FORMS if form.dimensions == tuple(dimensions)), None)


def _task(texts: Mapping[str, str]) -> str:
    """Return the task that later exporters of the same authors name; "" if none is named."""
    return str(_value("task", texts["task"])) if "task" in texts else ""


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
