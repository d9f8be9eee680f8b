"""LabelMe: a JSON file for each image, as labelme and X-AnyLabeling write it.

Before: `table.py`. After: `file_per_image.py`.

Source: github.com/wkentaro/labelme, "JSON file format", and its issues 633 and 714 on groups.
"""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np

from backend.words import count
from utils.data.image.decoding import OtherSizeError, decode_bytes
from utils.data.image.header import BrokenImageError, read_header
from utils.data.sources.formats.annotations import UNKNOWN
from utils.data.sources.formats.coco_masks import mask_outline
from utils.data.sources.formats.file_per_image import FilePerImage, ImageAnnotation
from utils.errors import brief
from utils.files.json import read_json
from utils.files.regular import open_regular
from utils.polygons import join_parts

MAX_BYTES = 1 << 28  # a file may hold its whole image as text
LARGEST = 1e9  # pixels
MAX_MASK_PIXELS = 1 << 25
MAX_RUNS = 200_000  # of a mask that gets an outline; one with more is noise
MAX_PIXELS_OF_MASKS = 1 << 27  # of all masks in a file
_HEAD_BYTES = 1 << 16
_KEYS = re.compile(rb'"(shapes|imagePath|imageData|imageHeight)"\s*:')
_POLYGONS = ("polygon", "rotation", "quadrilateral", "oriented_rectangle")
_WITH_AREA = (*_POLYGONS, "rectangle", "circle", "mask")
_LEFT_OUT = dict.fromkeys(("point", "points", "line", "linestrip"), "lines and points")
_IGNORED = "__ignore__"  # labelme's own exports skip it


class _Shape(NamedTuple):
    """A shape with an area."""

    points_xy: np.ndarray  # (K, 2), of its outline
    is_outline: bool  # the object's own; False: they only say where its box is


class _Budget:
    """The number of pixels that masks of a file may still have: a small PNG can hold many."""

    def __init__(self) -> None:
        self._left = MAX_PIXELS_OF_MASKS

    def take(self, size: tuple[int, int]) -> None:
        """Take a mask of (height, width) from it; ValueError when it is too large."""
        pixels = size[0] * size[1]
        self._left -= pixels
        if pixels > MAX_MASK_PIXELS or self._left < 0:
            raise ValueError(f"a mask of {size[1]}x{size[0]} px is too large")


def is_labelme(path: Path) -> bool:
    """Return whether a JSON file begins as one of LabelMe."""
    try:
        with open_regular(path) as file:
            head = file.read(_HEAD_BYTES).removeprefix(b"\xef\xbb\xbf").lstrip()
    except OSError:
        return False
    return head.startswith(b"{") and bool(_KEYS.search(head))


def parse(path: Path) -> ImageAnnotation | None:
    """Read the JSON file of an image.

    Shapes of one label and one group are one object, as in labelme's own exports. Points and lines
    are left out, and what is marked as difficult or to be ignored.

    Raises:
        OSError, ValueError: the file is broken; the text says where.
    """
    document = read_json(path, MAX_BYTES)
    shapes = document.get("shapes") if isinstance(document, dict) else None
    if not isinstance(shapes, list):
        return None
    name = document.get("imagePath")
    found = ImageAnnotation(name if isinstance(name, str) else "", _size(document))
    objects: dict[tuple[str, tuple[str, str]], list[_Shape]] = {}
    budget = _Budget()
    for number, shape in enumerate(shapes, start=1):
        try:
            label, kind = _label(shape), _left_out_as(shape)
            if kind:
                found.left_out.append(kind)
            else:
                key = label, _group(shape, number)
                objects.setdefault(key, []).append(_read_shape(shape, budget))
        except ValueError as error:
            raise ValueError(f"shape {number}: {error}") from error
    for (label, _), parts in objects.items():
        _add(found, label, parts)
    return found


def _size(document: Mapping[str, Any]) -> tuple[int, int]:
    """Return (height, width), which scripts leave out."""
    sides: list[Any] = [document.get(name) for name in ("imageHeight", "imageWidth")]
    if not all(type(side) in (int, float) and 1 < side <= LARGEST for side in sides):
        return UNKNOWN
    height, width = map(int, sides)
    return height, width


def _label(shape: Any) -> str:
    label = shape.get("label") if isinstance(shape, dict) else None
    if type(label) not in (str, int) or label == "":
        raise ValueError(f"its label is {brief(label)}; a text is needed")
    str(label).encode()  # half of a character is none
    return str(label)


def _left_out_as(shape: Mapping[str, Any]) -> str:
    """Return the word for many shapes that are not trained on, or ""."""
    if shape["label"] == _IGNORED:
        return "ignored shapes"
    if shape.get("difficult") is True:
        return "difficult objects"
    kind, points = _kind(shape), shape.get("points")
    if kind in _POLYGONS and isinstance(points, list) and len(points) < 3:
        return "lines and points"
    return "" if kind in _WITH_AREA else _LEFT_OUT.get(str(kind), "shapes of other kinds")


def _kind(shape: Mapping[str, Any]) -> Any:
    return shape.get("shape_type") or "polygon"  # once there was no other


def _group(shape: Mapping[str, Any], number: int) -> tuple[str, str]:
    """Return what is equal for shapes of one object."""
    group = shape.get("group_id")
    return ("group", str(group)) if type(group) in (int, str) else ("alone", str(number))


def _read_shape(shape: Mapping[str, Any], budget: _Budget) -> _Shape:
    kind, points = _kind(shape), _points(shape.get("points"))
    if kind in _POLYGONS:
        return _Shape(points, True)
    if len(points) < 2:
        raise ValueError(f"a {kind} of {count(len(points), 'point')}; two are needed")
    if kind == "circle":
        radius = float(np.hypot(*(points[1] - points[0])))
        return _box(points[0] - radius, points[0] + radius)
    if kind == "mask":
        return _mask(shape.get("mask"), points.min(0).round(), budget)
    return _box(points.min(0), points.max(0))


def _box(first_xy: np.ndarray, last_xy: np.ndarray) -> _Shape:
    (left, top), (right, bottom) = first_xy, last_xy
    return _Shape(np.array([[left, top], [right, top], [right, bottom], [left, bottom]]), False)


def _points(value: Any) -> np.ndarray:
    """Return points (K, 2) float64."""
    try:
        points = np.array(value, np.float64)
    except (TypeError, ValueError, OverflowError):
        points = np.zeros(0)
    if points.ndim != 2 or points.shape[1] != 2 or not (np.abs(points) <= LARGEST).all():
        raise ValueError(f"its points are {brief(value)}; a list of x and y is needed")
    return points


def _mask(text: Any, origin_xy: np.ndarray, budget: _Budget) -> _Shape:
    """Return the outline of a mask, a PNG as base64 text; its left and top pixel is at the origin.

    Raises:
        ValueError: no PNG, or too large.
    """
    if not isinstance(text, str):
        raise ValueError(f"its mask is {brief(text)}; a PNG as base64 text is needed")
    content = base64.b64decode(text, validate=True)
    try:
        size = read_header(io.BytesIO(content)).size
        budget.take(size)
        blue, green, red = np.moveaxis(decode_bytes(np.frombuffer(content, np.uint8), size), 2, 0)
    except (BrokenImageError, OtherSizeError) as error:
        raise ValueError(f"its mask: {error}") from error
    mask = (blue | green | red) > 0
    counts = _runs(mask)
    if mask.any() and len(counts) <= MAX_RUNS:
        return _Shape(origin_xy + mask_outline({"size": list(size), "counts": counts}), True)
    left, top, width, height = cv2.boundingRect(mask.astype(np.uint8))  # 0 of an empty mask
    first_xy = origin_xy + [left, top]
    return _box(first_xy, first_xy + [width, height])


def _runs(mask: np.ndarray) -> list[int]:
    """Return the lengths of the runs of a mask (H, W), column by column; the first is outside."""
    pixels = np.concatenate([[False], mask.T.ravel()])
    changes = np.flatnonzero(pixels[1:] != pixels[:-1])
    return np.diff(changes, prepend=0, append=mask.size).tolist()


def _add(found: ImageAnnotation, label: str, parts: Sequence[_Shape]) -> None:
    """Add an object of one or more shapes; if all are boxes, it has no outline."""
    points = np.concatenate([part.points_xy for part in parts])
    (left, top), (right, bottom) = points.min(0).tolist(), points.max(0).tolist()
    box = left, top, right, bottom
    if any(part.is_outline for part in parts):
        found.add(label, box, join_parts([part.points_xy for part in parts]))
    else:
        found.add(label, box)


_FILES = FilePerImage("LabelMe", ".json", is_labelme, parse)
LABELME = _FILES.as_format()
