"""The metadata of an exported file: its inputs, outputs and origin.

The values are JSON, parsed and never evaluated. Formats that store texts have one per field, the
others one JSON object, `metadata.json`.
"""

import dataclasses
import io
import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from duet.utils.errors import UserError, brief
from duet.utils.files.json_files import Document, parse_json
from duet.utils.files.regular import ZIP_ERRORS, read_text_bytes
from duet.utils.image_limits import MAX_IMAGE_SIZE
from duet.utils.text import count

ROWS = "rows"  # (B, N, 5 + C) float32: cx, cy, w, h in pixels of the input, objectness, classes
DETECTIONS = "detections"  # (B, K, 6) float32: x1, y1, x2, y2, score, class; unused rows are 0
MASK_ROWS = "mask_rows"  # ROWS with M coefficients behind them; prototypes (B, M, h, w) float32
MASKS = "masks"  # DETECTIONS; their masks (B, K, h, w) float32 in [0, 1] over the input
LOGITS = "logits"  # (B, C) float32, before softmax
RAW = "raw"  # maps (B, K, H, W) float32 per level, before decoding
OUTPUTS = (ROWS, DETECTIONS, MASK_ROWS, MASKS, LOGITS, RAW)
RAW_FORMS = ("maps", "sigmoid", "split", "split-sigmoid")
OUTPUT_NAMES = "output0", "output1"  # in a graph, as in the public YOLOv5; the second is of masks
WITH_MASKS = (MASK_ROWS, MASKS)
FLOATS = "floats"  # (B, 3, H, W) float32, RGB in [0, 1], as the task has them
NORMALIZED = "normalized"  # FLOATS less the head's mean, divided by its deviation
_TASKS = {MASK_ROWS: "segment", MASKS: "segment", LOGITS: "classify"}  # "detect" without a line
PRODUCER = "Duet"
MOST = 10_000  # classes, as in a model YAML; detections of NMS, as in --topk-all
LONGEST_NAME = 1000  # characters
LARGEST_BATCH = 1 << 16
Shape = Sequence[int | None]  # None: free, or not known
Outputs = tuple[np.ndarray, ...]  # outputs of a file, each (B, ...) float32
BOX_COLUMNS, DETECTION_COLUMNS = 5, 6  # cx, cy, w, h, objectness; x1, y1, x2, y2, score, class
MOST_MASKS = 1024  # per image: each costs its own prototype in a file with NMS
HEAD = "Detect"  # rows of other heads may have other columns
METADATA_FILE = "metadata.json"
MAX_METADATA_BYTES = 1 << 24
ABSENT_FROM_OLDER_FILES: dict[str, object] = {"trained_size": None, "raw": {}}


@dataclass(frozen=True)
class Metadata:
    class_names: tuple[str, ...]
    stride: int
    image_size: tuple[int, int]  # (height, width) of the input; with `dynamic` an example
    batch_size: int = 1  # images per call; with `dynamic` an example
    dynamic: bool = False  # batch, height and width are free, the sides in multiples of `stride`
    image: str = FLOATS  # or NORMALIZED in files of other programs
    output: str = ROWS  # one of OUTPUTS
    precision: str = "float32"  # or "float16", "int8"
    head: str = "Detect"  # name in model YAMLs
    # Of NMS in the graph, by names of `SuppressionSettings`.
    suppression: Document = dataclasses.field(default_factory=dict)
    trained_size: int | None = None  # long side of the training images, pixels; None if unknown
    raw: Document = dataclasses.field(default_factory=dict)  # form, strides, anchors

    @property
    def smallest_batch(self) -> int:
        return 1 if self.dynamic else self.batch_size

    def texts(self) -> dict[str, str]:
        """Return each field, and the producer, as JSON."""
        fields = {**dataclasses.asdict(self), "producer": PRODUCER}
        if not self.raw:
            del fields["raw"]
        return {name: _as_json(value) for name, value in fields.items()}

    def public_texts(self) -> dict[str, str]:
        """Return the metadata for YOLOv5 and Ultralytics: Python literals that are also YAML."""
        names = (f"{index}: {_as_json(name)}" for index, name in enumerate(self.class_names))
        return {
            "names": "{" + ", ".join(names) + "}",
            "stride": str(self.stride),
            "task": _TASKS.get(self.output, "detect"),
            "imgsz": str(list(self.image_size)),
            "batch": str(self.batch_size),
        }


def _as_json(value: object) -> str:
    """Return JSON in which lone surrogates are escaped."""
    return json.dumps(value, ensure_ascii=False).encode(errors="backslashreplace").decode()


def metadata_of(texts: Mapping[str, str]) -> Metadata:
    """Parse the output of `Metadata.texts`; UserError names a missing or wrong field."""
    values: dict[str, object] = {}
    for name in _ACCEPTED.keys() & texts.keys():
        try:
            values[name] = parse_json(texts[name])
        except ValueError as error:
            raise UserError(f"its metadata has {name} {brief(texts[name])}: {error}") from error
    return checked(values)


def metadata_as_json(metadata: Metadata) -> str:
    fields = (f"{json.dumps(name)}: {text}" for name, text in metadata.texts().items())
    return "{\n" + ",\n".join(fields) + "\n}\n"


def metadata_of_json(content: str | bytes) -> Metadata:
    """Parse the output of `metadata_as_json`; UserError for another text."""
    try:
        fields = parse_json(content)
    except ValueError as error:
        raise UserError(f"its {METADATA_FILE} is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise UserError(f"its {METADATA_FILE} holds no object; export it with export.py")
    return checked(fields)


def metadata_of_folder(folder: Path, files: Sequence[str]) -> Metadata:
    """Return the metadata of a folder; UserError if it lacks one of these files."""
    for name in (METADATA_FILE, *files):
        if not (folder / name).exists():
            raise UserError(f"the folder lacks {name}; export it with export.py")
    return metadata_of_json(read_text_bytes(folder / METADATA_FILE, MAX_METADATA_BYTES))


def metadata_in_zip(content: bytes, ending: str) -> Metadata:
    """Return the metadata in a file that is, or ends with, a zip archive; ending: of the member."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            names = [name for name in archive.namelist() if name.endswith(ending)]
            text = archive.open(names[0]).read(MAX_METADATA_BYTES) if names else None
    except ZIP_ERRORS as error:
        raise UserError("damaged, or it holds no metadata; export it with export.py") from error
    if text is None:
        raise UserError("another program exported it, without our metadata; use export.py")
    return metadata_of_json(text)


def checked(values: Document) -> Metadata:
    """Return metadata of plain values; UserError names a missing or wrong field."""
    values = {**ABSENT_FROM_OLDER_FILES, **values}
    for name, is_accepted in _ACCEPTED.items():
        if name not in values:
            raise UserError(f"its metadata lacks {name}; export it with export.py")
        if not is_accepted(values[name]):
            raise UserError(f"its metadata has {name} {brief(values[name])}; export it again")
    fields = {name: values[name] for name in _ACCEPTED}
    for name in ("class_names", "image_size"):
        fields[name] = tuple(fields[name])
    metadata = Metadata(**fields)
    if any(side % metadata.stride for side in metadata.image_size):
        raise UserError(
            f"its metadata has image_size {list(metadata.image_size)}, no multiples of its stride "
            f"{metadata.stride}; export it again"
        )
    return metadata


def _is_whole(value: object, most: int) -> bool:
    return type(value) is int and 1 <= value <= most


def _is_text(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= LONGEST_NAME


def _is_fraction(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= 1


def _is_switch(value: object) -> bool:
    return isinstance(value, bool)


_SUPPRESSION: dict[str, Callable[[object], bool]] = {
    "confidence_threshold": _is_fraction,
    "iou_threshold": _is_fraction,
    "class_agnostic": _is_switch,
    "classes": lambda value: value is None,
    "max_detections": lambda value: _is_whole(value, MOST),
    "multi_label": _is_switch,
}
_ACCEPTED: dict[str, Callable[[object], bool]] = {
    "class_names": lambda value: (
        isinstance(value, list) and 1 <= len(value) <= MOST and all(map(_is_text, value))
    ),
    "stride": lambda value: _is_whole(value, MAX_IMAGE_SIZE),
    "image_size": lambda value: (
        isinstance(value, list)
        and [_is_whole(side, MAX_IMAGE_SIZE) for side in value] == [True, True]
    ),
    "batch_size": lambda value: _is_whole(value, LARGEST_BATCH),
    "dynamic": _is_switch,
    "image": (FLOATS, NORMALIZED).__contains__,
    "output": OUTPUTS.__contains__,
    "precision": ("float32", "float16", "int8").__contains__,
    "head": _is_text,
    "suppression": lambda value: (
        isinstance(value, dict)
        and all(name in _SUPPRESSION and _SUPPRESSION[name](x) for name, x in value.items())
    ),
    "trained_size": lambda value: value is None or _is_whole(value, MAX_IMAGE_SIZE),
    "raw": lambda value: isinstance(value, dict),  # for other programs: nothing here reads it
}


class Runtime(Protocol):
    """A loaded exported file, called by one thread at a time unless its format is `side_by_side`.

    Attributes:
        name: name, version and device of the runtime, for the log.
    """

    metadata: Metadata
    name: str

    def __call__(self, images: np.ndarray) -> Outputs:
        """Run the file; return the outputs of `metadata.output`, float32.

        images: (B, 3, H, W) float32 as in `metadata.image`; of the file's size unless dynamic.
        """


def output_names(output: str) -> tuple[str, ...]:
    return OUTPUT_NAMES if output in WITH_MASKS else OUTPUT_NAMES[:1]


def shapes_of(metadata: Metadata) -> tuple[Shape, ...]:
    """Return the shapes of a file's outputs, without the batch."""
    classes, anything = len(metadata.class_names), (None, None, None)
    columns = BOX_COLUMNS + classes if metadata.head == HEAD else None
    shapes: dict[str, tuple[Shape, ...]] = {
        ROWS: ((None, columns),),
        DETECTIONS: ((None, DETECTION_COLUMNS),),
        MASK_ROWS: ((None, None), anything),
        MASKS: ((None, DETECTION_COLUMNS), anything),
        LOGITS: ((classes,),),
    }
    return shapes[metadata.output]


def example_images(metadata: Metadata) -> np.ndarray:
    """Return noise (B, 3, H, W) float32 as input of a file, a single image if it is dynamic."""
    shape = metadata.smallest_batch, 3, *metadata.image_size
    return np.random.default_rng(0).random(shape, np.float32)


def fault_of_returned(metadata: Metadata, returned: Sequence[Shape], batch_size: int) -> str:
    """Describe the fault in a file's output shapes for a batch; "" if there is none."""
    if metadata.output == RAW:
        return ""
    expected = shapes_of(metadata)
    if len(returned) != len(expected):
        number = count(len(returned), "output")
        return f"it returns {number}, but its metadata has {len(expected)}"
    for found, sides in zip(returned, expected, strict=True):
        wanted = batch_size, *sides
        pairs = zip(found, wanted, strict=False)
        if len(found) != len(wanted) or not all(
            None in pair or len({*pair}) == 1 for pair in pairs
        ):
            return f"it returns {_text(found)}, but its metadata has {_text(wanted)}"
    if metadata.output in WITH_MASKS:
        rows, masks = returned
        needed = BOX_COLUMNS + len(metadata.class_names) + (masks[1] or 0)
        fits = rows[1] == masks[1] if metadata.output == MASKS else rows[2] == needed
        if 0 in masks or not fits:
            return (
                f"it returns {_text(rows)} with masks {_text(masks)}: of those no mask of "
                f"{count(len(metadata.class_names), 'class', 'classes')} can be made"
            )
    return ""


def _text(shape: Shape) -> str:
    return "(" + ", ".join("any" if size is None else str(size) for size in shape) + ")"
