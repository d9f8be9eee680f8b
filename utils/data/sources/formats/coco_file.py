"""COCO's instances JSON, for datasets and for the metric alike.

Format: https://cocodataset.org/#format-data, "Object Detection".
"""

import math
import os
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from duet.utils.data.masks.runs import read_runs, runs_of_polygons, whole_outline
from duet.utils.errors import brief
from duet.utils.files.json_files import Document, read_json
from duet.utils.geometry.boxes import corners_of, join_parts

MAX_BYTES = 1 << 31
LARGEST_NUMBER = 1e10  # pixels or square pixels; also refuses infinity and NaN
SECTIONS = ("images", "annotations", "categories")
_LONGEST_NAME = 4096


class BrokenInstancesError(ValueError):
    """A file that is no instances JSON, or an unusable object; the message lacks the file."""


@dataclass(frozen=True, eq=False)
class Segmentation:
    """The outline of an object in pieces, or the runs of its mask, or neither."""

    pieces: Sequence[np.ndarray] = ()  # each (K, 2) float64 pixels
    runs: np.ndarray | None = None  # (N,) uint32
    size: tuple[int, int] = (0, 0)  # height and width of the runs; 0 without any

    def __bool__(self) -> bool:
        return self.runs is not None or bool(self.pieces)

    def runs_over(self, size: tuple[int, int], box_xyxy: np.ndarray) -> np.ndarray:
        """Return the runs (N,) uint32 over an image of (height, width).

        box_xyxy: (4,) of the object, which counts without a segmentation.
        """
        if self.runs is not None:
            return self.runs
        height, width = size
        box = corners_of(box_xyxy.clip(0, [width, height, width, height]))
        return runs_of_polygons(self.pieces or [box], size)

    def outline(self) -> np.ndarray:
        if self.runs is not None:
            return whole_outline(self.runs, self.size)
        return join_parts(self.pieces) if self.pieces else np.zeros((0, 2))


class Image(NamedTuple):
    id: int
    name: str
    size: tuple[int, int]  # height and width; 0 if not given


class Category(NamedTuple):
    id: int
    name: str
    supercategory: str


class Instance(NamedTuple):
    """An annotation; its accessors raise BrokenInstancesError for unusable values."""

    called: str  # name in messages
    category_id: int
    content: Document

    def unusable(self, text: str) -> BrokenInstancesError:
        return BrokenInstancesError(f"{self.called}: {text}")

    def is_crowd(self) -> bool:
        value = self.content.get("iscrowd") or 0
        if value not in (0, 1):
            raise self.unusable(f"iscrowd {brief(value)}; accepted: 0 or 1")
        return bool(value)

    def box_ltwh(self) -> tuple[float, float, float, float]:
        """Return left, top, width and height of the box in pixels."""
        box: Any = self.content.get("bbox")
        try:
            left, top, width, height = box
            if all(abs(number) <= LARGEST_NUMBER for number in box) and min(width, height) >= 0:
                return left, top, width, height
        except (TypeError, ValueError):  # not four, or not all are numbers
            pass
        raise self.unusable(f"bbox {brief(box)}; left, top, width, height are needed")

    def area(self) -> float:
        """Return the area in square pixels; NaN if not given."""
        area = self.content.get("area")
        if area is None:
            return math.nan
        if type(area) not in (int, float) or not 0 <= area <= LARGEST_NUMBER:
            raise self.unusable(f"area {brief(area)}; accepted: 0 or more")
        return float(area)

    def segmentation(self) -> Segmentation:
        value = self.content.get("segmentation")
        try:
            if isinstance(value, dict):
                return Segmentation((), *read_runs(value))
            pieces = _pieces_of(value) if value else []
        except (TypeError, ValueError) as error:
            reason = error if isinstance(error, ValueError) else brief(value)
            raise self.unusable(f"its segmentation cannot be used: {reason}") from error
        if not all((np.abs(piece) <= LARGEST_NUMBER).all() for piece in pieces):  # NaN is not
            raise self.unusable("its segmentation has coordinates far beyond any image")
        return Segmentation(pieces)


def _pieces_of(segmentation: Sequence[Any]) -> list[np.ndarray]:
    """Return the pieces of a polygon with at least three points, each (K, 2).

    ValueError, TypeError: it is no polygon.
    """
    if not isinstance(segmentation[0], list):
        segmentation = [segmentation]  # not COCO's way, and clear
    pieces = [np.array(array("d", piece)) for piece in segmentation]
    if any(len(piece) % 2 for piece in pieces):
        raise ValueError(f"{brief(segmentation)}; x1, y1, x2, y2, ... are needed")
    # Two points enclose nothing.
    return [piece.reshape(-1, 2) for piece in pieces if len(piece) >= 6]


class Instances(NamedTuple):
    images: Sequence[Image]
    categories: Sequence[Category]
    objects: Sequence[Sequence[Instance]]  # of each image
    num_without_image: int  # objects of which no image has the id


def read_instances(path: Path) -> Instances:
    """Read an instances JSON.

    OSError: as `regular.open_regular`. BrokenInstancesError: another file, or an image, category
    or object without its id.
    """
    try:
        document = read_json(path, MAX_BYTES)
    except ValueError as error:
        raise BrokenInstancesError(f"it is not a valid JSON object: {error}") from error
    images = _by_id("image", map(_image_of, _entries(document, "images")))
    categories = _by_id("category", map(_category_of, _entries(document, "categories")))
    objects: dict[int, list[Instance]] = {identity: [] for identity in images}
    without_image: list[Instance] = []
    for entry in _entries(document, "annotations"):
        image_id, category_id = entry.whole("image_id"), entry.whole("category_id")
        number = entry.content.get("id")
        called = f"annotation {number}" if type(number) is int and number >= 0 else entry.called
        found = Instance(called, category_id, entry.content)
        objects.get(image_id, without_image).append(found)
    return Instances(
        list(images.values()), list(categories.values()), list(objects.values()), len(without_image)
    )


class _Entry(NamedTuple):
    content: Any
    called: str

    def unusable(self, text: str) -> BrokenInstancesError:
        return BrokenInstancesError(f"{self.called}{text}")

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
        """Return a side of an image in pixels; 0 if not given."""
        if self.content.get(key) is None:
            return 0
        side = self.whole(key)
        if not 0 <= side <= LARGEST_NUMBER:
            raise self.unusable(f": {key} {side}; accepted: 0 or more")
        return side


def _entries(document: object, section: str) -> Iterator[_Entry]:
    """Yield each entry of a section; raise BrokenInstancesError if it is absent."""
    values = document.get(section) if isinstance(document, dict) else None
    if not isinstance(values, list):
        raise BrokenInstancesError(
            f"'{section}' is not a list in it; a COCO instances file has the lists "
            + ", ".join(SECTIONS)
        )
    for number, value in enumerate(values):
        yield _Entry(value, f"entry {number} of '{section}'")


def _image_of(entry: _Entry) -> Image:
    identity, name = entry.whole("id"), entry.value("file_name")
    is_name = isinstance(name, str) and 0 < len(name) <= _LONGEST_NAME and "\0" not in name
    try:
        is_name = is_name and bool(os.fsencode(name))
    except UnicodeEncodeError:  # half of a surrogate pair
        is_name = False
    if not is_name:
        raise entry.unusable(f": file_name {brief(name)} cannot be the name of a file")
    return Image(identity, name, (entry.side("height"), entry.side("width")))


def _category_of(entry: _Entry) -> Category:
    identity, name = entry.whole("id"), entry.value("name")
    if type(name) not in (str, int):  # what 1.10 was written as is not known
        raise entry.unusable(f": name {brief(name)} is no text; put it in quotes")
    supercategory = str(entry.content.get("supercategory") or "")[:_LONGEST_NAME]
    return Category(identity, str(name), supercategory)


_Listed = TypeVar("_Listed", Image, Category)


def _by_id(what: str, listed: Iterable[_Listed]) -> dict[int, _Listed]:
    found: dict[int, _Listed] = {}
    for each in listed:
        if found.setdefault(each.id, each) is not each:
            raise BrokenInstancesError(
                f"two entries have the {what} id {each.id}; each must differ"
            )
    return found
