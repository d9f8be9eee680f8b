"""The label file of an image: one line per object, normalised coordinates; read and written."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np

from duet.utils.boxes import xyxy_to_cxcywh
from duet.utils.data.masks.runs import LONGEST_OUTLINE, outline_of_runs
from duet.utils.detections import Detections, Segmentations
from duet.utils.polygons import Polygons, starts_of
from duet.utils.regular_files import read_bytes
from duet.utils.text import count

MAX_LABEL_BYTES = 1 << 22  # per image; parsed numbers take many times as much
COORDINATE_TOLERANCE = 1e-4  # a rounded decimal may lie this far outside [0, 1]; it is clipped
FEWEST_CORNERS = 3  # in an outline
MOST_CROSSINGS = 5000  # total length of all outlines, in image sides


class BrokenLabelError(Exception):
    """Why a label file cannot be used."""


def label_path(image_path: Path) -> Path:
    """Return the label file of an image: `labels` for the last folder `images`, and suffix .txt.

    Without a folder `images` in the path, the label file lies beside the image.
    """
    return Path(label_name(str(image_path)))


def label_name(image_path: str) -> str:
    """Return `label_path` of a path as text; a scan asks for millions."""
    folder, slash, name = image_path.rpartition("/")
    folders = folder.split("/")
    if "images" in folders:
        folders[len(folders) - 1 - folders[::-1].index("images")] = "labels"
    stem, dot, suffix = name.rpartition(".")
    return "/".join(folders) + slash + (stem if stem and suffix else name) + ".txt"


def label_file_of(image_path: str) -> str:
    """Return the label file that is read: `label_name`; beside the image if only there is one.

    labelImg and others write label files beside the images, whatever the folder is called. Where
    `label_name` has its folder, nothing beside an image is taken for labels.
    """
    name = label_name(image_path)
    folder, image_folder = os.path.dirname(name), os.path.dirname(image_path)
    if folder == image_folder or os.path.isdir(folder):
        return name
    beside = os.path.join(image_folder, os.path.basename(name))
    return beside if os.path.exists(beside) else name


def read_label_bytes(path: Path) -> bytes | None:
    """Return the content of a label file; None when there is no such file.

    Raises:
        BrokenLabelError: it cannot be read, or is larger than 4 MiB.
    """
    try:
        return read_bytes(path, MAX_LABEL_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BrokenLabelError(error.strerror) from error


class Labels(NamedTuple):
    """The objects of an image, normalised."""

    class_index: np.ndarray  # (M,) int64
    boxes_cxcywh_norm: np.ndarray  # (M, 4) float32 in [0, 1]
    polygons_norm: Polygons | None  # float32 in [0, 1], of the M objects; None when all are boxes
    removed: str  # description of the repeated rows that were dropped; or ""


def parse_labels(content: bytes | None, num_classes: int) -> Labels:
    """Read lines of `class cx cy w h`, or `class x1 y1 x2 y2 x3 y3 ...` (a polygon), normalised.

    Both may be in one file. The box of a polygon is the smallest around its points.

    Args:
        content: content of a label file in UTF-8; None if missing.

    Raises:
        BrokenLabelError: the first line that breaks the format, and how.
    """
    lines = lines_of(content)
    unique: dict[tuple[float, ...], list[float]] = {}  # class and box: x1, y1, ..., empty for a box
    for number, line in lines:
        try:
            label, outline = _parse_row(list(map(float, line.split())), num_classes)
        except (BrokenLabelError, ValueError) as error:  # it may quote a line as long as the file
            raise BrokenLabelError(f"line {number}: {str(error):.120}") from error
        unique.setdefault(label, outline)
    table = np.array(list(unique), np.float64).reshape(-1, 5)
    boxes = table[:, 1:].clip(0, 1).astype(np.float32)
    polygons = None
    if any(unique.values()):
        coordinates = np.fromiter(chain.from_iterable(unique.values()), np.float64)
        points = coordinates.reshape(-1, 2).clip(0, 1).astype(np.float32)
        num_points = [len(outline) // 2 for outline in unique.values()]
        polygons = Polygons(points, starts_of(np.array(num_points)))
    num_repeated = len(lines) - len(unique)
    removed = count(num_repeated, "repeated row") if num_repeated else ""
    return Labels(table[:, 0].astype(np.int64), boxes, polygons, removed)


def require_drawable(polygons: Polygons | None, size: tuple[int, int]) -> None:
    """Raise BrokenLabelError for outlines so long that they must be damaged.

    To compute their pixels would take minutes and gigabytes.

    Args:
        polygons: in pixels of an image.
        size: its (height, width).
    """
    if polygons is None:
        return
    points, starts = polygons.points_xy, polygons.starts
    has_points = polygons.num_points > 0
    following = np.arange(1, len(points) + 1)
    following[starts[1:][has_points] - 1] = starts[:-1][has_points]
    length = float(np.abs(points[following] - points).max(axis=1).sum(dtype=np.float64))
    longest = min(MOST_CROSSINGS * max(size), LONGEST_OUTLINE)
    if length > longest:
        raise BrokenLabelError(
            f"outlines of {length:,.0f} px in an image of {size[1]}x{size[0]}; accepted: at most "
            f"{longest:,} px"
        )


def lines_of(content: bytes | None) -> list[tuple[int, str]]:
    """Return lines that are not blank with their numbers; raise BrokenLabelError if not UTF-8."""
    try:
        lines = (content or b"").decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise BrokenLabelError(str(error)) from error
    return [(number, line) for number, line in enumerate(lines, start=1) if line.strip()]


def _parse_row(values: list[float], num_classes: int) -> tuple[tuple[float, ...], list[float]]:
    if len(values) < 5 or len(values) % 2 == 0:
        raise BrokenLabelError(
            f"{count(len(values), 'column')}; accepted: class cx cy w h, or a polygon"
        )
    class_number, *coordinates = values
    if not (class_number.is_integer() and 0 <= class_number < num_classes):
        raise BrokenLabelError(
            f"class {class_number:g}, but the dataset's classes are 0 to {num_classes - 1}"
        )
    lowest, highest = -COORDINATE_TOLERANCE, 1 + COORDINATE_TOLERANCE
    within = lowest <= min(coordinates) and max(coordinates) <= highest
    # Min and max may step over NaN, which a sum does not.
    if not within or math.isnan(sum(coordinates)):
        value = next(value for value in coordinates if not lowest <= value <= highest)
        raise BrokenLabelError(f"coordinate {value:g}; accepted: normalised, from 0 to 1")
    outline = coordinates if len(coordinates) > 4 else []
    box = box_of_polygon(outline) if outline else coordinates
    if min(box[2:]) <= 0:
        raise BrokenLabelError(f"a box of {box[2]:g} x {box[3]:g}; accepted: a box with an area")
    return (class_number, *box), outline


def box_of_polygon(coordinates: Sequence[float]) -> list[float]:
    """Return the smallest box (cx, cy, w, h) around a polygon (x1, y1, x2, y2, ...)."""
    xs, ys = coordinates[0::2], coordinates[1::2]
    left, top, right, bottom = min(xs), min(ys), max(xs), max(ys)
    return [(left + right) / 2, (top + bottom) / 2, right - left, bottom - top]


def label_lines(
    found: Detections | Segmentations,
    image_size: tuple[int, int],
    scores: bool = False,
    track_ids: np.ndarray | None = None,
) -> list[str]:
    """Return the lines of a label file, as the public YOLOv5 writes them: lowest score first.

    A line has the class, the place, then score and track id where asked for.

    The place is centre and size of the box or, of an object with a mask, x and y of each corner of
    its outline: the piece with the most points. A mask with fewer than three corners has those of
    its box instead.

    Args:
        found: in pixels of the image; lines have fractions of its width and height.
        image_size: (height, width), pixels.
        track_ids: (K,) int64; None if nothing is tracked.
    """
    places = _outlines(found, image_size) if isinstance(found, Segmentations) else _boxes(found)
    lines = []
    for row in reversed(range(len(places))):
        place = places[row] / (image_size[1], image_size[0])
        numbers = [int(found.class_index[row]), *place.ravel().tolist()]
        numbers += [float(found.scores[row])] if scores else []
        numbers += [] if track_ids is None else [int(track_ids[row])]
        lines.append(" ".join(map(_number, numbers)))
    return lines


def _boxes(found: Detections) -> np.ndarray:
    """Return centre and size of each box, (K, 2, 2) float64 x and y in pixels."""
    return xyxy_to_cxcywh(found.boxes_xyxy.astype(np.float64)).reshape(-1, 2, 2)


def _outlines(found: Segmentations, image_size: tuple[int, int]) -> list[np.ndarray]:
    """Return the corners of each object, (N, 2) float64 x and y in pixels."""
    outlines = []
    for runs, box in zip(found.masks.rows(), found.boxes_xyxy, strict=True):
        corners = outline_of_runs(runs, image_size)
        if len(corners) < FEWEST_CORNERS:
            corners = box[[0, 1, 2, 1, 2, 3, 0, 3]].reshape(4, 2)
        outlines.append(corners.astype(np.float64))
    return outlines


def _number(value: float) -> str:
    """Return a whole number in full, another with six significant digits."""
    return str(value) if isinstance(value, int) else f"{value:.6g}"
