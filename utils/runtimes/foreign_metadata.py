"""What an ONNX file of the public YOLOv5 exporter tells, which is little: stride and names.

They are Python's literals as texts, "{0: 'person', 1: 'bicycle'}", which are YAML too. All else is
told by the graph. Before: `onnx_reading.py`. After: whoever runs the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from backend.words import count
from utils.errors import UserError, brief
from utils.files.yaml import parse_yaml
from utils.runtimes.metadata import Metadata, checked

EXAMPLE = 640  # pixels, where the size is free
LONGEST = 1 << 20  # characters of a text


def is_foreign(texts: Mapping[str, str]) -> bool:
    """Return whether metadata are those of the public exporter, not ours."""
    return "names" in texts and "class_names" not in texts


def foreign_metadata(
    texts: Mapping[str, str],
    shape: Sequence[int | None],
    kind: str,
    output: Sequence[int | None],
) -> Metadata:
    """Return what such a file would say of itself.

    Args:
        shape, kind: of the input, with None for a free size, and its NumPy type.
        output: the shape of the output.

    Raises:
        UserError: a text that is wrong, or a graph that is no detector of the public YOLOv5.
    """
    names = _names(_value("names", texts["names"]))
    stride = _value("stride", texts.get("stride", "32"))
    if len(shape) != 4 or len(output) != 3:
        raise UserError(
            f"it takes {brief(list(shape))}, and it returns {brief(list(output))}; a detector "
            "takes images (B, 3, H, W) and returns rows (B, N, 5 + classes)"
        )
    columns = output[2]
    if columns not in (None, 5 + len(names)):
        raise UserError(
            f"it returns rows of {columns} numbers, of which "
            f"{count(len(names), 'class', 'classes')} need {5 + len(names)}: it is no detector of "
            "the public YOLOv5"
        )
    batch, channels, height, width = shape
    free = height is None and width is None
    if channels != 3 or (height is None) != (width is None) or (free and batch is not None):
        raise UserError(f"it takes {list(shape)}; sizes are to be all fixed, or all but 3 free")
    side = -(-EXAMPLE // stride) * stride if isinstance(stride, int) and stride > 0 else EXAMPLE
    return checked(
        {
            "class_names": names,
            "stride": stride,
            "image_size": [height or side, width or side],
            "batch_size": batch or 1,
            "dynamic": free,
            "precision": kind or "float32",
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
