"""COCO's instances JSON read into arrays, for datasets and for the metric alike.

Format: https://cocodataset.org/#format-data, "Object Detection".
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from duet.utils.boxes import corners_of
from duet.utils.data.masks.runs import read_runs, runs_of_polygons, whole_outline
from duet.utils.errors import brief
from duet.utils.json_files import read_json
from duet.utils.polygons import Polygons, join_parts, starts_of

MAX_BYTES = 1 << 31
LARGEST_NUMBER = 1e10  # pixels or square pixels; also refuses infinity and NaN
SECTIONS = ("images", "annotations", "categories")
_LONGEST_NAME = 4096
_KEYS = "id", "iscrowd", "bbox", "area", "segmentation"  # keys of an object, besides its image
_BOX = "left, top, width, height are needed"


class BrokenInstancesError(ValueError):
    """Why a file is not an instances JSON; the text does not name the file."""


@dataclass(frozen=True, eq=False)
class Segments:
    """The segmentations of T objects: pieces of polygons, or the runs of a mask, or neither."""

    pieces: Polygons  # all objects, float64 pixels
    starts: np.ndarray  # (T + 1,) int64: object i has the pieces starts[i] up to starts[i + 1]
    runs: np.ndarray  # (N,) uint32 of all objects; one of pieces has none
    run_starts: np.ndarray  # (T + 1,) int64: object i has those from run_starts[i] on
    sizes: np.ndarray  # (T, 2) int64: height and width of the runs; 0 where there are none

    def count(self, rows: np.ndarray) -> int:
        """Return how many of some objects, given by their indices, have a segmentation."""
        has_one = (self.starts[rows + 1] > self.starts[rows]) | (self.sizes[rows, 0] > 0)
        return int(np.count_nonzero(has_one))

    def pieces_of(self, rows: Sequence[int]) -> list[np.ndarray]:
        """Return the pieces of some objects, each (K, 2), one behind the other."""
        starts = self.starts
        return [
            self.pieces.outline(piece)
            for row in rows
            for piece in range(starts[row], starts[row + 1])
        ]

    def _runs(self, row: int) -> np.ndarray:
        return self.runs[self.run_starts[row] : self.run_starts[row + 1]]

    def runs_of(self, row: int, box_xyxy: np.ndarray, size: tuple[int, int]) -> np.ndarray:
        """Return the runs (N,) uint32 of an object over an image of (height, width).

        box_xyxy: (4,) of the object, which counts where it has no segmentation.
        """
        if self.sizes[row, 0]:
            return self._runs(row)
        height, width = size
        box = corners_of(box_xyxy.clip(0, [width, height, width, height]))
        return runs_of_polygons(self.pieces_of([row]) or [box], size)

    def outline(self, row: int) -> np.ndarray:
        """Return one outline (K, 2) of an object, its pieces joined; K is 0 without any."""
        if height := self.sizes[row, 0]:
            size = int(height), int(self.sizes[row, 1])
            return whole_outline(self._runs(row), size)
        pieces = self.pieces_of([row])
        return join_parts(pieces) if pieces else np.zeros((0, 2))


@dataclass(frozen=True, eq=False)
class Instances:
    """The content of an instances JSON with N images and T objects, in its order."""

    image_ids: tuple[int, ...]
    file_names: tuple[str, ...]
    sizes: np.ndarray  # (N, 2) int64, height and width; 0 where it gives none
    category_ids: tuple[int, ...]
    category_names: tuple[str, ...]
    supercategories: tuple[str, ...]
    ids: np.ndarray  # (T,) int64, of the objects, for messages; -1 where it gives none
    image: np.ndarray  # (T,) int64, the index of the object's image; -1: no image has its id
    category: np.ndarray  # (T,) int64, likewise
    boxes_ltwh: np.ndarray  # (T, 4) float64: left, top, width, height, pixels
    area: np.ndarray  # (T,) float64, square pixels; NaN where it gives none, or `area_faults` why
    is_crowd: np.ndarray  # (T,) bool
    segments: Segments | None  # T objects; None if not read
    faults: Mapping[int, str]  # why an object cannot be used, by its index
    area_faults: Mapping[int, str]

    def named(self, row: int) -> str:
        """Return the name of an object in messages."""
        return _named(row, self.ids[row])

    def rows_of_images(self) -> list[np.ndarray]:
        """Return the objects of each image by their indices, in the file's order."""
        order = np.argsort(self.image, kind="stable")
        starts = np.searchsorted(self.image[order], np.arange(len(self.image_ids)))
        return np.split(order, starts)[1:]  # the first are those of no image


def _named(row: int, identity: int) -> str:
    return f"annotation {identity}" if identity >= 0 else f"entry {row} of 'annotations'"


def read_instances(path: Path, segments: bool = True, of_crowds: bool = False) -> Instances:
    """Read an instances JSON.

    Args:
        segments: read the segmentations.
        of_crowds: those of crowds too.

    Raises:
        OSError: as `regular.open_regular`.
        BrokenInstancesError: not JSON, not an instances file, or an image, category or object
            without its id.
    """
    images: list[_Image] = []
    categories: list[_Category] = []
    objects = _Objects(segments, of_crowds)
    for entry in _entries(path):
        if entry.section == "annotations":
            objects.add(entry)
        elif entry.section == "images":
            images.append(_image_of(entry))
        else:
            categories.append(_category_of(entry))
    return objects.joined(images, categories)


class _Entry(NamedTuple):
    """An entry of a section, which may be anything."""

    content: Any
    section: str
    number: int

    def unusable(self, text: str) -> BrokenInstancesError:
        return BrokenInstancesError(f"entry {self.number} of '{self.section}'{text}")

    def value(self, key: str) -> Any:
        if not isinstance(self.content, dict) or key not in self.content:
            raise self.unusable(f" has no '{key}'")
        return self.content[key]

    def whole(self, key: str) -> int:
        """Return a whole number; 7.0 is one, as some programs write all numbers."""
        value = self.value(key)
        if type(value) is int:
            return value
        if type(value) is float and value.is_integer() and abs(value) <= LARGEST_NUMBER:
            return int(value)
        raise self.unusable(f": {key} {brief(value)} is no whole number")

    def side(self, key: str) -> int:
        """Return a side of an image in pixels; 0 where the entry gives none."""
        if self.content.get(key) is None:
            return 0
        side = self.whole(key)
        if not 0 <= side <= LARGEST_NUMBER:
            raise self.unusable(f": {key} {side}; accepted: 0 or more")
        return side


def _entries(path: Path) -> Iterator[_Entry]:
    """Yield each entry of the sections.

    Raises:
        BrokenInstancesError: not JSON, or a section is absent.
    """
    try:
        document = read_json(path, MAX_BYTES)
    except ValueError as error:
        raise BrokenInstancesError(f"it is not a valid JSON object: {error}") from error
    for section in SECTIONS:
        values = document.get(section) if isinstance(document, dict) else None
        if not isinstance(values, list):
            raise BrokenInstancesError(
                f"'{section}' is not a list in it; a COCO instances file has the lists "
                + ", ".join(SECTIONS)
            )
        for number, value in enumerate(values):
            yield _Entry(value, section, number)


class _Image(NamedTuple):
    id: int
    name: str
    size: tuple[int, int]


def _image_of(entry: _Entry) -> _Image:
    identity, name = entry.whole("id"), entry.value("file_name")
    is_name = isinstance(name, str) and 0 < len(name) <= _LONGEST_NAME and "\0" not in name
    try:
        is_name = is_name and bool(os.fsencode(name))
    except UnicodeEncodeError:  # half of a surrogate pair
        is_name = False
    if not is_name:
        raise entry.unusable(f": file_name {brief(name)} cannot be the name of a file")
    return _Image(identity, name, (entry.side("height"), entry.side("width")))


class _Category(NamedTuple):
    id: int
    name: str
    supercategory: str


def _category_of(entry: _Entry) -> _Category:
    identity, name = entry.whole("id"), entry.value("name")
    if isinstance(name, (list, dict)) or name is None:
        raise entry.unusable(f": name {brief(name)} is no text")
    supercategory = str(entry.content.get("supercategory") or "")[:_LONGEST_NAME]
    return _Category(identity, str(name), supercategory)


class _Objects:
    """The columns of the objects, which grow without an object of Python for each."""

    def __init__(self, segments: bool, of_crowds: bool) -> None:
        self._segments, self._of_crowds = segments, of_crowds
        self.ids, self.image_ids, self.category_ids = array("q"), array("q"), array("q")
        self.boxes, self.areas, self.crowds = array("d"), array("d"), array("b")
        self.points, self.num_points, self.num_pieces = array("d"), array("q"), array("q")
        self.runs, self.num_runs, self.mask_sizes = array("I"), array("q"), array("q")
        self.faults: dict[int, str] = {}
        self.area_faults: dict[int, str] = {}

    def add(self, entry: _Entry) -> None:
        self.image_ids.append(entry.whole("image_id"))
        self.category_ids.append(entry.whole("category_id"))
        identity, is_crowd, box, area, segmentation = map(entry.content.get, _KEYS)
        self.ids.append(identity if type(identity) is int else -1)
        self._add_box(box)
        known = type(area) in (int, float) and 0 <= area <= LARGEST_NUMBER
        if area is not None and not known:
            self.area_faults[len(self.ids) - 1] = f"area {brief(area)}; accepted: 0 or more"
        self.areas.append(area if known else np.nan)
        if (is_crowd or 0) not in (0, 1):
            self._fault(f"iscrowd {brief(is_crowd)}; accepted: 0 or 1")
        self.crowds.append(is_crowd == 1)
        if self._segments:
            self._add_segmentation(segmentation if self._of_crowds or not is_crowd else None)

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

    def _add_segmentation(self, segmentation: Any) -> None:
        num_pieces, num_runs, size = 0, 0, (0, 0)
        try:
            if isinstance(segmentation, dict):
                lengths, size = read_runs(segmentation)
                self.runs.frombytes(lengths.tobytes())
                num_runs = len(lengths)
            elif segmentation:
                for piece in _pieces_of(segmentation):
                    self.points.extend(piece)
                    self.num_points.append(len(piece) // 2)
                    num_pieces += 1
        except (TypeError, ValueError) as error:
            reason = error if isinstance(error, ValueError) else brief(segmentation)
            self._fault(f"its segmentation cannot be used: {reason}")
        self.num_pieces.append(num_pieces)
        self.num_runs.append(num_runs)
        self.mask_sizes.extend(size)

    def joined(self, images: list[_Image], categories: list[_Category]) -> Instances:
        """Return the tables as one."""
        image_of = _index_of("image", [image.id for image in images])
        category_of = _index_of("category", [category.id for category in categories])
        boxes = np.array(self.boxes).reshape(-1, 4)
        for row in np.flatnonzero(~(_are_numbers(boxes) & (boxes[:, 2:] >= 0).all(1))).tolist():
            self.faults.setdefault(row, f"bbox {brief(boxes[row].tolist())}; {_BOX}")
        segments = self._joined_segments() if self._segments else None
        category = np.array([category_of.get(number, -1) for number in self.category_ids], np.int64)
        for row in np.flatnonzero(category < 0).tolist():
            unknown = f"'categories' has no id {self.category_ids[row]}"
            self.faults.setdefault(row, unknown)
        return Instances(
            tuple(image_of),
            tuple(image.name for image in images),
            np.array([image.size for image in images], np.int64).reshape(-1, 2),
            tuple(category_of),
            tuple(category.name for category in categories),
            tuple(category.supercategory for category in categories),
            np.array(self.ids, np.int64),
            np.array([image_of.get(number, -1) for number in self.image_ids], np.int64),
            category,
            boxes,
            np.array(self.areas),
            np.array(self.crowds, np.int8).astype(bool),
            segments,
            self._with_names(self.faults),
            self._with_names(self.area_faults),
        )

    def _joined_segments(self) -> Segments:
        points = np.frombuffer(self.points, np.float64).reshape(-1, 2)
        segments = Segments(
            Polygons(points, starts_of(np.array(self.num_points, np.int64))),
            starts_of(np.array(self.num_pieces, np.int64)),
            np.frombuffer(self.runs, np.uint32),
            starts_of(np.array(self.num_runs, np.int64)),
            np.array(self.mask_sizes, np.int64).reshape(-1, 2),
        )
        wrong = np.flatnonzero(~_are_numbers(points))
        first_points = segments.pieces.starts[segments.starts]
        for row in np.unique(np.searchsorted(first_points, wrong, "right") - 1).tolist():
            self.faults.setdefault(row, "its segmentation has coordinates far beyond any image")
        return segments

    def _with_names(self, faults: Mapping[int, str]) -> dict[int, str]:
        return {row: f"{_named(row, self.ids[row])}: {text}" for row, text in faults.items()}


def _pieces_of(segmentation: Sequence[Any]) -> list[array[float]]:
    """Return the pieces of a polygon, each x1, y1, x2, y2, ..., at least three points.

    Raises:
        ValueError, TypeError: what is listed is no polygon.
    """
    if not isinstance(segmentation[0], list):
        segmentation = [segmentation]  # not COCO's way, and clear
    pieces = [array("d", piece) for piece in segmentation]
    if any(len(piece) % 2 for piece in pieces):
        raise ValueError(f"{brief(segmentation)}; x1, y1, x2, y2, ... are needed")
    return [piece for piece in pieces if len(piece) >= 6]  # two points enclose nothing


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
