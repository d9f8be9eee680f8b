"""LabelMe: a JSON file for each image, as labelme and X-AnyLabeling write it.

Source: github.com/wkentaro/labelme, "JSON file format", and its issues 633 and 714 on groups.
"""

import base64
import io
import re
from pathlib import Path
from typing import Any

import numpy as np

from duet.utils.data.image.decoding import OtherSizeError, decode_bytes
from duet.utils.data.image.header import BrokenImageError, read_header
from duet.utils.data.masks.runs import MAX_MASK_PIXELS, runs_of_mask, whole_outline
from duet.utils.data.sources.formats.file_per_image import FilePerImage, Parsed
from duet.utils.data.sources.formats.format import (
    LARGEST,
    NO_OUTLINE,
    UNKNOWN,
    Format,
    ImageLabels,
    box_around,
    read_head,
    read_points,
)
from duet.utils.errors import brief
from duet.utils.files.json_files import Document, read_json
from duet.utils.geometry.boxes import corners_of, join_parts
from duet.utils.text import count

MAX_BYTES = 1 << 28  # a file may hold its whole image as text
MAX_RUNS = 200_000  # per mask
_HEAD_BYTES = 1 << 16
_KEYS = re.compile(rb'"(shapes|imagePath|imageData|imageHeight)"\s*:')
_POLYGONS = ("polygon", "rotation", "quadrilateral", "oriented_rectangle")
_WITH_AREA = (*_POLYGONS, "rectangle", "circle", "mask")
_LEFT_OUT = dict.fromkeys(("point", "points", "line", "linestrip"), "lines and points")
_IGNORED = "__ignore__"  # labelme's own exports skip it


# Points (K, 2) of a shape with an area, and whether they are its outline or only its
# bounds.
_Shape = tuple[np.ndarray, bool]


def is_labelme(path: Path) -> bool:
    head = read_head(path, _HEAD_BYTES)
    return head.lstrip().startswith(b"{") and bool(_KEYS.search(head))


def parse(path: Path) -> Parsed | None:
    """Read the JSON file of an image; OSError or ValueError says where it is broken.

    Shapes of one label and one group are one object, as in labelme's own exports. Points, lines and
    what is difficult or to be ignored are left out.
    """
    document = read_json(path, MAX_BYTES)
    shapes = document.get("shapes") if isinstance(document, dict) else None
    if not isinstance(shapes, list):
        return None
    sides: list[Any] = [document.get(name) for name in ("imageHeight", "imageWidth")]
    # Scripts leave the size out.
    is_known = all(type(side) in (int, float) and 1 < side <= LARGEST for side in sides)
    labels = ImageLabels(Path(), (int(sides[0]), int(sides[1])) if is_known else UNKNOWN)
    objects: dict[tuple[str, str], list[_Shape]] = {}
    masks: list[int] = []  # the pixels of each
    for number, shape in enumerate(shapes, start=1):
        try:
            label, kind = _label(shape), _left_out_as(shape)
            if kind:
                labels.left_out.append(kind)
            else:
                group = shape.get("group_id")
                key = f"group {group}" if type(group) in (int, str) else f"shape {number}"
                objects.setdefault((label, key), []).append(_read_shape(shape, masks))
        except ValueError as error:
            raise ValueError(f"shape {number}: {error}") from error
    for (label, _), parts in objects.items():
        points = [points_xy for points_xy, _ in parts]
        has_outline = any(is_outline for _, is_outline in parts)  # else all are boxes
        outline = join_parts(points) if has_outline else NO_OUTLINE
        labels.add(label, box_around(np.concatenate(points)), outline)
    name = document.get("imagePath")
    return name if isinstance(name, str) else "", labels


def _label(shape: object) -> str:
    label = shape.get("label") if isinstance(shape, dict) else None
    if type(label) not in (str, int) or label == "":
        raise ValueError(f"its label is {brief(label)}; accepted: a text")
    str(label).encode()  # half of a character is none
    return str(label)


def _left_out_as(shape: Document) -> str:
    """Return the word for many shapes that are not trained on, or ""."""
    if shape["label"] == _IGNORED:
        return "ignored shapes"
    if shape.get("difficult") is True:
        return "difficult objects"
    kind, points = _kind(shape), shape.get("points")
    if kind in _POLYGONS and isinstance(points, list) and len(points) < 3:
        return "lines and points"
    return "" if kind in _WITH_AREA else _LEFT_OUT.get(str(kind), "shapes of other kinds")


def _kind(shape: Document) -> object:
    return shape.get("shape_type") or "polygon"  # once there was no other


def _read_shape(shape: Document, masks: list[int]) -> _Shape:
    kind, points = _kind(shape), read_points(shape.get("points"))
    if kind in _POLYGONS:
        return points, True
    if len(points) < 2:
        raise ValueError(f"a {kind} of {count(len(points), 'point')}; two are needed")
    if kind == "circle":
        radius = float(np.hypot(*(points[1] - points[0])))
        return _box(points[0] - radius, points[0] + radius)
    if kind == "mask":
        return _mask(shape.get("mask"), points.min(0).round(), masks)
    return _box(points.min(0), points.max(0))


def _box(first_xy: np.ndarray, last_xy: np.ndarray) -> _Shape:
    return corners_of(np.concatenate([first_xy, last_xy])), False


def _mask(text: object, origin_xy: np.ndarray, masks: list[int]) -> _Shape:
    """Return the outline of a PNG mask as base64 text with its top left pixel at the origin."""
    if not isinstance(text, str):
        raise ValueError(f"its mask is {brief(text)}; accepted: a PNG as base64 text")
    content = base64.b64decode(text, validate=True)
    try:
        height, width = size = read_header(io.BytesIO(content)).size
        masks.append(height * width)
        if sum(masks) > MAX_MASK_PIXELS:  # a small PNG can contain many
            raise ValueError(f"a mask of {width}x{height} px is too large, with those before it")
        image = decode_bytes(np.frombuffer(content, np.uint8), size)
    except (BrokenImageError, OtherSizeError) as error:
        raise ValueError(f"its mask: {error}") from error
    runs = runs_of_mask(image.max(axis=2) > 0)
    if len(runs) > MAX_RUNS:
        raise ValueError(f"a mask of {len(runs):,} runs is noise; at most {MAX_RUNS:,} are read")
    outline = whole_outline(runs, size)
    return (origin_xy + outline, True) if len(outline) else _box(origin_xy, origin_xy)


_FILES = FilePerImage("LabelMe", ".json", is_labelme, parse)
LABELME = Format(_FILES.name, _FILES.accepts, _FILES.find, _FILES.read)
