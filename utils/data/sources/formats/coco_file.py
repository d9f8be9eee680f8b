"""COCO's instances JSON read into arrays, for datasets and for the metric alike.

Before: `utils/files/json_members.py`. After: `coco.py`, `sources/coco_annotations.py`.
Format: https://cocodataset.org/#format-data, "Object Detection".
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from utils.data.sources.formats.coco_masks import mask_outline, read_pieces
from utils.data.sources.formats.coco_segments import Segments, SegmentTable
from utils.errors import brief
from utils.files.json_members import read_members
from utils.polygons import Polygons, join_parts, starts_of

MAX_BYTES = 1 << 32
LARGEST_NUMBER = 1e10  # pixels or square pixels; also refuses infinity and NaN
SECTIONS = ("images", "annotations", "categories")
_LONGEST_NAME = 4096
_BOX = "left, top, width, height are needed"


class BrokenInstancesError(ValueError):
    """Why a file is not an instances JSON; the text does not name the file."""


@dataclass(frozen=True, eq=False)
class Instances:
    """What an instances JSON says of N images and T objects, in its order; nothing is left out."""

    image_ids: tuple[int, ...]
    file_names: tuple[str, ...]
    sizes: np.ndarray  # (N, 2) int64, height and width; 0 where it says none
    category_ids: tuple[int, ...]
    category_names: tuple[str, ...]
    supercategories: tuple[str, ...]
    ids: np.ndarray  # (T,) int64, of the objects, for messages; -1 where it says none
    image: np.ndarray  # (T,) int64, the index of the object's image; -1: no image has its id
    category: np.ndarray  # (T,) int64, likewise
    boxes_ltwh: np.ndarray  # (T, 4) float64: left, top, width, height, pixels
    area: np.ndarray  # (T,) float64, square pixels; NaN where it says none, or `area_faults` why
    is_crowd: np.ndarray  # (T,) bool
    polygons: Polygons  # of the T objects, float64; crowds have none
    segments: Segments | None  # of the T objects, crowds too; None where they were not read
    faults: Mapping[int, str]  # why an object cannot be used, by its index
    area_faults: Mapping[int, str]

    def named(self, row: int) -> str:
        """Return the name of an object in messages."""
        return _named(row, self.ids[row])


def _named(row: int, identity: int) -> str:
    return f"annotation {identity}" if identity >= 0 else f"entry {row} of 'annotations'"


def read_instances(path: Path, outlines: bool = True, segments: bool = False) -> Instances:
    """Read an instances JSON.

    Args:
        outlines: without them no object has a polygon.
        segments: keep the pieces and masks of objects too, as they are.

    Raises:
        OSError: as `regular.open_regular`.
        BrokenInstancesError: not JSON, not an instances file, or an image, category or object
            without its id.
    """
    images, categories = _Images(), _Categories()
    objects = _Objects(outlines, SegmentTable() if segments else None)
    tables: dict[str, _Table] = {
        "images": images,
        "annotations": objects,
        "categories": categories,
    }
    with _refusing():
        for section, entries in _sections(path):
            _add_all(tables[section], section, entries)
        return objects.joined(images, categories)


def read_file_names(path: Path, most: int) -> list[str]:
    """Return the file names of the first images, at most `most`; raise as `read_instances`."""
    images = _Images()
    with _refusing():
        for section, entries in _sections(path):
            if section == "images":
                _add_all(images, section, islice(entries, most))
                break
    return images.names


class _Table(Protocol):
    def add(self, entry: Any) -> None:
        """Add an entry of a section; raise _UnusableError if it cannot be used."""


def _add_all(table: _Table, section: str, entries: Iterable[Any]) -> None:
    for number, entry in enumerate(entries):
        try:
            table.add(entry)
        except _UnusableError as error:
            raise BrokenInstancesError(f"entry {number} of '{section}'{error}") from error


@contextmanager
def _refusing() -> Iterator[None]:
    try:
        yield
    except BrokenInstancesError:
        raise
    except ValueError as error:
        raise BrokenInstancesError(f"it is not a valid JSON object: {error}") from error


def _sections(path: Path) -> Iterator[tuple[str, Iterator[Any]]]:
    """Yield the lists of an instances JSON; raise BrokenInstancesError when one is absent."""
    missing = list(SECTIONS)
    for name, entries in read_members(path, MAX_BYTES):
        if name in missing and entries is not None:
            missing.remove(name)
            yield name, entries
    if missing:
        raise BrokenInstancesError(
            f"'{missing[0]}' is not a list in it; a COCO instances file has the lists "
            + ", ".join(SECTIONS)
        )


class _UnusableError(ValueError):
    """Why an entry cannot be used, behind its number."""


def _value(entry: Any, key: str) -> Any:
    if not isinstance(entry, dict) or key not in entry:
        raise _UnusableError(f" has no '{key}'")
    return entry[key]


def _whole(entry: Any, key: str) -> int:
    """Return a whole number; 7.0 is one, as some programs write all numbers."""
    value = _value(entry, key)
    if type(value) is int:
        return value
    if type(value) is float and value.is_integer() and abs(value) <= LARGEST_NUMBER:
        return int(value)
    raise _UnusableError(f": {key} {brief(value)} is no whole number")


class _Images:
    def __init__(self) -> None:
        self.ids: list[int] = []
        self.names: list[str] = []
        self.sizes: list[tuple[int, int]] = []

    def add(self, entry: Any) -> None:
        identity, name = _whole(entry, "id"), _value(entry, "file_name")
        if not _is_file_name(name):
            raise _UnusableError(f": file_name {brief(name)} cannot be the name of a file")
        self.ids.append(identity)
        self.names.append(name)
        self.sizes.append((_side(entry, "height"), _side(entry, "width")))


def _is_file_name(name: Any) -> bool:
    if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME or "\0" in name:
        return False
    try:
        os.fsencode(name)
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True


def _side(entry: Mapping[str, Any], key: str) -> int:
    """Return a side of an image in pixels; 0 where the entry says none."""
    if entry.get(key) is None:
        return 0
    side = _whole(entry, key)
    if not 0 <= side <= LARGEST_NUMBER:
        raise _UnusableError(f": {key} {side}; 0 or more is needed")
    return side


class _Categories:
    def __init__(self) -> None:
        self.ids: list[int] = []
        self.names: list[str] = []
        self.supercategories: list[str] = []

    def add(self, entry: Any) -> None:
        identity, name = _whole(entry, "id"), _value(entry, "name")
        if isinstance(name, (list, dict)) or name is None:
            raise _UnusableError(f": name {brief(name)} is no text")
        self.ids.append(identity)
        self.names.append(str(name))
        self.supercategories.append(str(entry.get("supercategory") or "")[:_LONGEST_NAME])


@dataclass
class _Objects:
    """The columns of the objects, which grow without an object of Python for each."""

    outlines: bool
    segments: SegmentTable | None
    ids: array[int] = field(default_factory=lambda: array("q"))
    image_ids: array[int] = field(default_factory=lambda: array("q"))
    category_ids: array[int] = field(default_factory=lambda: array("q"))
    boxes: array[float] = field(default_factory=lambda: array("d"))
    areas: array[float] = field(default_factory=lambda: array("d"))
    crowds: array[int] = field(default_factory=lambda: array("b"))
    points: array[float] = field(default_factory=lambda: array("d"))
    num_points: array[int] = field(default_factory=lambda: array("q"))
    faults: dict[int, str] = field(default_factory=dict)
    area_faults: dict[int, str] = field(default_factory=dict)

    def add(self, entry: Any) -> None:
        image, category = _whole(entry, "image_id"), _whole(entry, "category_id")
        identity = entry.get("id")
        self.ids.append(identity if type(identity) is int else -1)
        self.image_ids.append(image)
        self.category_ids.append(category)
        self._add_box(entry.get("bbox"))
        self._add_area(entry.get("area"))
        is_crowd = entry.get("iscrowd") or 0
        if is_crowd not in (0, 1):
            self._fault(f"iscrowd {brief(is_crowd)}; 0 or 1 is needed")
        self.crowds.append(is_crowd == 1)
        segmentation = entry.get("segmentation")
        self._add_outline(segmentation if self.outlines and not is_crowd else None)
        self._add_segment(segmentation)

    def _fault(self, text: str) -> None:
        self.faults.setdefault(len(self.ids) - 1, text)

    def _add_box(self, box: Any) -> None:
        try:
            if isinstance(box, list) and len(box) == 4:
                return self.boxes.extend(array("d", box))
        except TypeError:  # not all are numbers
            pass
        self._fault(f"bbox {brief(box)}; {_BOX}")
        self.boxes.extend((0.0, 0.0, 0.0, 0.0))

    def _add_area(self, area: Any) -> None:
        known = type(area) in (int, float) and 0 <= area <= LARGEST_NUMBER
        if area is not None and not known:
            self.area_faults[len(self.ids) - 1] = f"area {brief(area)}; 0 or more is needed"
        self.areas.append(area if known else np.nan)

    def _add_outline(self, segmentation: Any) -> None:
        before = len(self.points)
        with self._noting_faults(segmentation):
            if isinstance(segmentation, dict):
                self.points.frombytes(mask_outline(segmentation).tobytes())
            elif segmentation:
                self._add_polygon(segmentation)
        self.num_points.append((len(self.points) - before) // 2)

    def _add_segment(self, segmentation: Any) -> None:
        if self.segments is not None:
            with self._noting_faults(segmentation):
                self.segments.add(segmentation)

    @contextmanager
    def _noting_faults(self, segmentation: Any) -> Iterator[None]:
        try:
            yield
        except (TypeError, ValueError) as error:
            reason = error if isinstance(error, ValueError) else brief(segmentation)
            self._fault(f"its segmentation cannot be used: {reason}")

    def _add_polygon(self, segmentation: Any) -> None:
        """Add the points of a polygon, or of several parts, which are joined."""
        parts = read_pieces(segmentation)
        if len(parts) == 1:
            self.points.extend(parts[0])
        elif parts:
            outlines = [np.frombuffer(part, np.float64).reshape(-1, 2) for part in parts]
            self.points.frombytes(join_parts(outlines).tobytes())

    def joined(self, images: _Images, categories: _Categories) -> Instances:
        """Return the tables as one."""
        image_of, category_of = (
            _index_of("image", images.ids),
            _index_of("category", categories.ids),
        )
        boxes = np.frombuffer(self.boxes, np.float64).reshape(-1, 4)
        points = np.frombuffer(self.points, np.float64).reshape(-1, 2)
        starts = starts_of(np.frombuffer(self.num_points, np.int64))
        for row in np.flatnonzero(~(_are_numbers(boxes) & (boxes[:, 2:] >= 0).all(1))).tolist():
            self.faults.setdefault(row, f"bbox {brief(boxes[row].tolist())}; {_BOX}")
        self._note_far_points(points, starts)
        segments = self.segments.joined() if self.segments is not None else None
        if segments is not None:
            pieces = segments.pieces
            self._note_far_points(pieces.points_xy, pieces.starts[segments.starts])
        category = np.array([category_of.get(number, -1) for number in self.category_ids], np.int64)
        for row in np.flatnonzero(category < 0).tolist():
            unknown = f"'categories' has no id {self.category_ids[row]}"
            self.faults.setdefault(row, unknown)
        return Instances(
            tuple(images.ids),
            tuple(images.names),
            np.array(images.sizes, np.int64).reshape(-1, 2),
            tuple(categories.ids),
            tuple(categories.names),
            tuple(categories.supercategories),
            np.frombuffer(self.ids, np.int64),
            np.array([image_of.get(number, -1) for number in self.image_ids], np.int64),
            category,
            boxes,
            np.frombuffer(self.areas, np.float64),
            np.frombuffer(self.crowds, np.int8).astype(bool),
            Polygons(points, starts),
            segments,
            {row: f"{_named(row, self.ids[row])}: {text}" for row, text in self.faults.items()},
            {
                row: f"{_named(row, self.ids[row])}: {text}"
                for row, text in self.area_faults.items()
            },
        )

    def _note_far_points(self, points: np.ndarray, starts: np.ndarray) -> None:
        """Note the objects whose points, from starts[i] to starts[i + 1], are of no image."""
        wrong = np.flatnonzero(~_are_numbers(points))
        for row in np.unique(np.searchsorted(starts, wrong, "right") - 1).tolist():
            self.faults.setdefault(row, "its segmentation has coordinates far beyond any image")


def _are_numbers(rows: np.ndarray) -> np.ndarray:
    """Return which rows (N, K) hold numbers of a plausible size, (N,) bool; NaN is none."""
    if not rows.size or rows.min() >= -LARGEST_NUMBER and rows.max() <= LARGEST_NUMBER:
        return np.ones(len(rows), bool)  # without a copy of what may be large
    return (np.abs(rows) <= LARGEST_NUMBER).all(axis=1)


def _index_of(what: str, ids: Sequence[int]) -> dict[int, int]:
    index_of = {identity: index for index, identity in enumerate(ids)}
    if len(index_of) < len(ids):
        repeated = next(number for index, number in enumerate(ids) if index_of[number] != index)
        raise BrokenInstancesError(f"two entries have the {what} id {repeated}; each must differ")
    return index_of
