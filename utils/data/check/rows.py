"""The objects of an image one by one, with what is wrong with each.

Training ends the reading of a label file at its first fault. Here every line is read.

Before: `sources/label_file.py`, `sources/annotated_images.py`. After: `inspection.py`, and
`corrected_copy.py`, which writes the rows that are right.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from backend.words import count
from utils.boxes import xyxy_to_cxcywh
from utils.data.sources.annotated_images import OVERSHOOT, AnnotatedImage
from utils.data.sources.class_folders import ClassImage
from utils.data.sources.label_file import (
    COORDINATE_TOLERANCE,
    BrokenLabelError,
    read_label_bytes,
)
from utils.data.sources.labels import ImageSource
from utils.data.sources.record_images import RecordImage
from utils.errors import brief

NO_CLASS = -1
MOST_FAULTS = 1000  # of an image: a file that is no label file may have millions
LONGEST_LINE = 4096  # characters of a line that are looked at, if it is no polygon


Box = Sequence[float]  # (4,) centre and size, normalised


class _Fault(NamedTuple):
    """What is wrong with an object."""

    kind: str  # as of `Row`
    text: str
    is_decided: bool


@dataclass(frozen=True, slots=True)
class Row:
    """An object as it is labelled."""

    place: str  # "line 3", "object 3"; "" of the whole file
    kind: str = ""  # of the fault, a key of `kinds.KINDS`; "" for none
    fault: str = ""  # in words
    class_index: int = NO_CLASS
    box_cxcywh_norm: Box = ()  # (4,); empty where it cannot be read
    outline_norm: Sequence[float] = ()  # x1, y1, x2, y2, ...; empty of a box
    is_decided: bool = False  # --fix writes it, clipped, whatever its fault

    @property
    def box_xyxy_norm(self) -> Sequence[float]:
        """Its edges, (4,); empty if it cannot be read."""
        return _edges(self.box_cxcywh_norm) if self.box_cxcywh_norm else ()


def read_rows(image: ImageSource, num_classes: int, size: tuple[int, int]) -> list[Row]:
    """Return all objects of an image, those with faults too.

    Args:
        size: (height, width) of the image, pixels.
    """
    try:
        rows = list(_until_too_many(_rows(image, num_classes, size)))
    except BrokenLabelError as error:
        is_other = isinstance(image, AnnotatedImage) and not image.annotations.broken.get(
            image.index
        )
        return [Row("", "other_shape" if is_other else "broken_label", str(error))]
    return _without_repeats(rows)


def label_bytes(image: ImageSource) -> bytes | None:
    """Return the content of an image's label file; None when there is none, or it needs none."""
    if isinstance(image, RecordImage):
        return image.entry.labels
    if not has_label_file(image):
        return None
    return read_label_bytes(Path(image.labels_at))


def has_label_file(image: ImageSource) -> bool:
    """Return whether an image's labels are in a file of their own, if it has any."""
    return not isinstance(image, (AnnotatedImage, ClassImage))


def _rows(image: ImageSource, num_classes: int, size: tuple[int, int]) -> Iterator[Row]:
    if not isinstance(image, AnnotatedImage):
        yield from rows_of_text(label_bytes(image) or b"", num_classes)
        return
    class_index, boxes, polygons = image.read_objects(size)
    for number, (index, box) in enumerate(
        zip(class_index.tolist(), xyxy_to_cxcywh(boxes).tolist(), strict=True), start=1
    ):
        outline = () if polygons is None else tuple(polygons.outline(number - 1).ravel().tolist())
        fault = _fault_of(box, outline, refused_beyond=OVERSHOOT)
        place = f"object {number}"
        yield Row(place, fault.kind, fault.text, index, tuple(box), outline, fault.is_decided)


def rows_of_text(content: bytes, num_classes: int) -> Iterator[Row]:
    """Yield the lines of a label file in YOLO's format; raise BrokenLabelError for no text."""
    try:
        lines = content.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise BrokenLabelError(str(error)) from error
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield _row_of_line(f"line {number}", line, num_classes)


def _until_too_many(rows: Iterator[Row]) -> Iterator[Row]:
    num_faults = 0
    for row in rows:
        yield row
        num_faults += row.kind != ""
        if num_faults == MOST_FAULTS:
            yield Row("", "broken_label", f"{MOST_FAULTS:,} faults; the rest is not checked")
            return


def _row_of_line(place: str, line: str, num_classes: int) -> Row:
    try:
        label, *numbers = map(float, line.split())
    except ValueError:
        text = f"{brief(line.strip()[:LONGEST_LINE])}; numbers are needed"
        return Row(place, "broken_label", text)
    if len(numbers) < 4 or len(numbers) % 2:
        columns = count(len(numbers) + 1, "column")
        return Row(place, "broken_label", f"{columns}; 5 are needed, or a polygon's")
    outline = tuple(numbers) if len(numbers) > 4 else ()
    box = _box_around(numbers) if outline else tuple(numbers)
    if not (label.is_integer() and 0 <= label < num_classes):
        text = f"class {label:g}; the classes are 0 to {num_classes - 1}"
        return Row(place, "unknown_class", text, NO_CLASS, box, outline)
    # What training refuses is a coordinate as it is written, not an edge of the box.
    value = _beyond(numbers, COORDINATE_TOLERANCE)
    fault = (
        _fault_of_coordinate(value, box, outline) if value else _fault_of(box, outline, math.inf)
    )
    return Row(place, fault.kind, fault.text, int(label), box, outline, fault.is_decided)


def _fault_of_coordinate(value: str, box: Box, outline: Sequence[float]) -> _Fault:
    is_little = not _beyond([*_edges(box), *outline], OVERSHOOT) and _has_area(box)
    return _Fault("overshoot" if is_little else "out_of_range", f"coordinate {value}", is_little)


def _fault_of(box: Box, outline: Sequence[float], refused_beyond: float) -> _Fault:
    """Return the fault of an object, if it has one.

    Args:
        refused_beyond: an edge that reaches out further leaves the image out.
    """
    edges = [*_edges(box), *outline]
    if value := _beyond(edges, refused_beyond):
        return _Fault("out_of_range", f"an edge at {value} of the side", False)
    if not _has_area(box):
        return _Fault("zero_area", f"a box of {box[2]:g} x {box[3]:g}", False)
    if not (value := _beyond(edges, COORDINATE_TOLERANCE)):
        return _Fault("", "", True)
    kind = "out_of_range" if _beyond(edges, OVERSHOOT) else "overshoot"
    return _Fault(kind, f"an edge at {value} of the side", True)


def _beyond(coordinates_norm: Sequence[float], tolerance: float) -> str:
    """Return the coordinate furthest outside 0 to 1 by more than a tolerance; or ""."""
    # Min and max may step over NaN, which a sum does not.
    if math.isnan(sum(coordinates_norm)):
        return "nan"
    furthest = max(min(coordinates_norm), max(coordinates_norm), key=lambda value: abs(value - 0.5))
    return f"{furthest:.6g}" if abs(furthest - 0.5) > 0.5 + tolerance else ""


def _edges(box_cxcywh: Box) -> Sequence[float]:
    """Return left, top, right and bottom."""
    x, y, width, height = box_cxcywh
    return x - width / 2, y - height / 2, x + width / 2, y + height / 2


def _has_area(box_cxcywh: Box) -> bool:
    """Return whether a part of an object lies in the image."""
    left, top, right, bottom = _edges(box_cxcywh)
    return min(box_cxcywh[2:]) > 0 and left < 1 and top < 1 and right > 0 and bottom > 0


def _box_around(outline: Sequence[float]) -> tuple[float, ...]:
    xs, ys = outline[0::2], outline[1::2]
    left, top, right, bottom = min(xs), min(ys), max(xs), max(ys)
    return (left + right) / 2, (top + bottom) / 2, right - left, bottom - top


def _without_repeats(rows: Sequence[Row]) -> list[Row]:
    """Return the rows; of equal ones, all but the first are faults."""
    first: dict[tuple[float, ...], str] = {}
    result = []
    for row in rows:
        if not row.is_decided:
            result.append(row)
            continue
        key = (row.class_index, *row.box_cxcywh_norm)
        if (before := first.setdefault(key, row.place)) != row.place:
            text = f"the same as {before}"
            row = replace(row, kind="repeated_object", fault=text, is_decided=False)
        result.append(row)
    return result
