"""The label file of an image: one line per object, normalised coordinates; read and written."""

import math
import os
import unicodedata
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np

from duet.utils.data.masks.runs import LONGEST_OUTLINE, outline_of_runs
from duet.utils.errors import brief
from duet.utils.files.regular import as_utf8, encoding_fault, read_bytes
from duet.utils.geometry.boxes import Polygons, corners_of, starts_of, xyxy_to_cxcywh
from duet.utils.geometry.detections import Detections, Segmentations
from duet.utils.text import count

MAX_LABEL_BYTES = 1 << 22  # per image; parsed numbers take many times as much
COORDINATE_TOLERANCE = 1e-4  # a rounded decimal may lie this far outside [0, 1]; it is clipped
FEWEST_CORNERS = 3  # in an outline
MOST_CROSSINGS = 5000  # total length of all outlines, in image sides
BOX_COLUMNS = 4  # behind the class
NO_CLASS = -1
ZERO_AREA, REPEATED = "zero_area", "repeated_object"  # kinds of faults that cost one object
WITHOUT_SCORES = "omit --save-conf, --track"


class BrokenLabelError(Exception):
    """Why a label file cannot be used."""

    def __init__(self, text: str, kind: str = "broken_label") -> None:
        super().__init__(text)
        self.kind = kind  # a key of `remarks.TITLES`


def label_path(image_path: Path) -> Path:
    """Return the label file of an image: `labels` for the last folder `images`, and suffix .txt."""
    return Path(label_name(image_path.as_posix()))


def label_name(image_path: str) -> str:
    """Return `label_path` as text; a scan asks for millions.

    image_path: as all texts of paths in this file, with "/" on Windows too.
    """
    folder, slash, name = image_path.rpartition("/")
    folders = folder.split("/")
    if "images" in folders:
        folders[len(folders) - 1 - folders[::-1].index("images")] = "labels"
    stem, dot, suffix = name.rpartition(".")
    return "/".join(folders) + slash + (stem if stem and suffix else name) + ".txt"


def label_file_of(image_path: str) -> str:
    """Return the label file that is read: `label_name`; beside the image if only there is one.

    labelImg and others write label files beside the images. Where the folder of `label_name`
    exists, nothing beside an image is taken for labels.
    """
    name = label_name(image_path)
    folder, image_folder = os.path.dirname(name), os.path.dirname(image_path)
    if folder == image_folder or os.path.isdir(folder):
        return name
    beside = os.path.join(image_folder, os.path.basename(name))
    return beside if os.path.exists(beside) else name


def overlooked_labels(image_path: str) -> str:
    """Return a file with an image's labels that is not read, if no other is; else "".

    Its suffix is upper case or keeps the image's, its name is in another Unicode normalization
    form, or it lies beside the image while there is a folder of labels.
    """
    name = label_file_of(image_path)
    if os.path.exists(name):
        return ""
    label_folder, stem = os.path.split(name.removesuffix(".txt"))
    suffix = os.path.splitext(image_path)[1]
    image_folder = os.path.dirname(image_path)
    stems = [os.path.join(x, stem) for x in (label_folder, image_folder)]
    if not stem.isascii():
        forms = {unicodedata.normalize(form, stem) for form in ("NFC", "NFD")} - {stem}
        stems += [
            os.path.join(label_folder, form)
            for form in sorted(forms)
            if not os.path.exists(os.path.join(image_folder, f"{form}{suffix}"))  # whose they are
        ]
    places = (f"{one}{end}" for one in stems for end in (".TXT", f"{suffix}.txt", ".txt"))
    return next((place for place in places if has_rows(Path(place))), "")


def has_rows(path: Path) -> bool:
    """Return whether a file begins as labels do; other texts lie beside images too."""
    try:
        words = (read_label_bytes(path) or b"").lstrip().partition(b"\n")[0].split()
        return len(list(map(float, words))) > BOX_COLUMNS
    except (BrokenLabelError, ValueError):
        return False


def read_label_bytes(path: Path) -> bytes | None:
    """Return the content of a label file; None when there is none. BrokenLabelError: unreadable."""
    try:
        return read_bytes(path, MAX_LABEL_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BrokenLabelError(str(error.strerror)) from error


class Labels(NamedTuple):
    class_index: np.ndarray  # (M,) int64
    boxes_cxcywh_norm: np.ndarray  # (M, 4) float32 in [0, 1]
    polygons_norm: Polygons | None  # float32 in [0, 1], of the M objects; None when all are boxes
    removed: Mapping[str, int] = {}  # number of objects that were left out, by kind of fault


class LabelRow(NamedTuple):
    """An object as it is labelled, and its fault if it has one."""

    place: str  # "line 3", "object 3"; "" for the whole file
    kind: str = ""  # broken_label, unknown_class, out_of_range, zero_area; "" without a fault
    fault: str = ""  # description
    class_index: int = NO_CLASS
    box_cxcywh_norm: Sequence[float] = ()  # empty where it cannot be read
    outline_norm: Sequence[float] = ()  # x1, y1, x2, y2, ...; empty of a box
    is_decided: bool = False  # `duet check --fix` writes it, clipped, whatever its fault

    @property
    def box_xyxy_norm(self) -> Sequence[float]:
        if not self.box_cxcywh_norm:
            return ()
        x, y, width, height = self.box_cxcywh_norm
        return x - width / 2, y - height / 2, x + width / 2, y + height / 2


def parse_labels(content: bytes | None, num_classes: int) -> Labels:
    """Read lines of `class cx cy w h`, or `class x1 y1 x2 y2 x3 y3 ...` (a polygon), normalised.

    The box of a polygon is the smallest around its points. Objects without an area and repeated
    ones are left out.

    content: content of a label file; None if missing.

    BrokenLabelError: the first line with another fault.
    """
    rows = list(label_rows(content, num_classes))
    for row in rows:
        if fault := row.fault or _fault_of_coordinates(row.outline_norm or row.box_cxcywh_norm):
            raise BrokenLabelError(f"{row.place}: {fault:.300}", row.kind or "out_of_range")
    polygons = None
    if any(row.outline_norm for row in rows):
        flat = chain.from_iterable(row.outline_norm for row in rows)
        points = np.fromiter(flat, np.float64).reshape(-1, 2).clip(0, 1).astype(np.float32)
        polygons = Polygons(points, starts_of(np.array([len(x.outline_norm) // 2 for x in rows])))
    boxes = np.array([row.box_cxcywh_norm for row in rows], np.float64).reshape(-1, 4)
    return usable_labels(np.array([row.class_index for row in rows], np.int64), boxes, polygons)


def usable_labels(
    class_index: np.ndarray, boxes_cxcywh_norm: np.ndarray, polygons: Polygons | None
) -> Labels:
    """Return normalised objects but those without an area and repeated ones.

    Args:
        boxes_cxcywh_norm: (M, 4) float64; they may reach out of the image by a rounding error.
        polygons: float32, of the M objects; None when all are boxes.
    """
    numbers = np.flatnonzero((boxes_cxcywh_norm[:, 2:] > 0).all(axis=1))

    def outline_of(number: int) -> bytes:
        return b"" if polygons is None else polygons.outline(numbers[number]).tobytes()

    pairs = zip(class_index[numbers].tolist(), boxes_cxcywh_norm[numbers].tolist(), strict=True)
    originals = repeats([(index, *box) for index, box in pairs], outline_of)
    kept = numbers[np.equal(originals, np.arange(len(numbers)))]
    if polygons is not None and len(kept) < len(class_index):
        polygons = polygons.select(kept).range(0, len(kept))
    boxes = boxes_cxcywh_norm[kept].clip(0, 1).astype(np.float32)
    removed = {ZERO_AREA: len(class_index) - len(numbers), REPEATED: len(numbers) - len(kept)}
    return Labels(class_index[kept], boxes, polygons, removed)


def repeats(
    places: Sequence[Hashable], outline_of: Callable[[int], Sequence[float] | bytes]
) -> list[int]:
    """Return for each object the number of the one that it repeats, or its own.

    Equal outlines of one class are one object; so is a box around exactly one of them.

    Args:
        places: class and box of each object.
        outline_of: returns the outline of an object, empty for a box.
    """
    found = list(range(len(places)))
    groups: dict[Hashable, list[int]] = {}
    for number, place in enumerate(places):
        groups.setdefault(place, []).append(number)
    for group in groups.values() if len(groups) < len(places) else ():
        outlines = {number: outline_of(number) for number in group}
        outlined = next((number for number in group if len(outlines[number])), group[0])
        first = {outlines[outlined]: outlined, outlines[outlined][:0]: outlined}
        for number in group:
            found[number] = first.setdefault(outlines[number], number)
    return found


def require_drawable(polygons: Polygons | None, size: tuple[int, int]) -> None:
    """Raise BrokenLabelError for absurdly long outlines in pixels of an image (height, width).

    Computing their pixels would take minutes and gigabytes.
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


def label_rows(content: bytes | None, num_classes: int) -> Iterator[LabelRow]:
    """Yield the lines that are not blank, with any coordinates; BrokenLabelError: not UTF-8."""
    try:
        lines = as_utf8(content or b"").decode().splitlines()
    except UnicodeDecodeError as error:
        raise BrokenLabelError(encoding_fault(error)) from error
    for number, line in enumerate(lines, start=1):
        if words := line.split():
            yield _parse_row(f"line {number}", words, num_classes)


def _parse_row(place: str, words: list[str], num_classes: int) -> LabelRow:
    try:
        label, *coordinates = map(float, words)
    except ValueError:  # a file that is none may be one line
        text = brief(" ".join(words[:50])[:200])
        return LabelRow(place, "broken_label", f"{text}; numbers are needed")
    if fault := _fault_of_columns(words, coordinates):
        return LabelRow(place, "broken_label", fault)
    outline = coordinates if len(coordinates) > BOX_COLUMNS else ()
    box = box_of_polygon(outline) if outline else coordinates
    if not (label.is_integer() and 0 <= label < num_classes):
        highest = f" to {num_classes - 1}" if num_classes > 1 else ""
        text = f"class {label:g}; accepted: 0{highest}"
        return LabelRow(place, "unknown_class", text, NO_CLASS, box, outline)
    return LabelRow(place, "", "", int(label), box, outline)


def _fault_of_coordinates(coordinates: Sequence[float]) -> str:
    lowest, highest = -COORDINATE_TOLERANCE, 1 + COORDINATE_TOLERANCE
    within = lowest <= min(coordinates) and max(coordinates) <= highest
    # Min and max may step over NaN, which a sum does not.
    if within and not math.isnan(sum(coordinates)):
        return ""
    value = next(value for value in coordinates if not lowest <= value <= highest)
    return f"coordinate {value:g}; accepted: normalised, from 0 to 1"


def _fault_of_columns(words: Sequence[str], coordinates: Sequence[float]) -> str:
    """Return the fault of the number of columns; "" for a box or a polygon."""
    columns = count(len(words), "column")
    if len(words) > BOX_COLUMNS + 1 and len(words) % 2 == 0:
        return f"{columns}: a score or track id too many; {WITHOUT_SCORES}"
    if len(words) < BOX_COLUMNS + 1 or len(words) % 2 == 0:
        return f"{columns}; accepted: class cx cy w h, or a polygon"
    if len(words) > BOX_COLUMNS + 1 and _is_tracked(words[-1], coordinates):
        return f"{columns}: a score and track id too many; {WITHOUT_SCORES}"
    return ""


def _is_tracked(last: str, coordinates: Sequence[float]) -> bool:
    """Return whether an odd number of columns ends in a score and a track id, no corner.

    Track id 1 behind a box within the image is no corner at the lower edge.
    """
    if not last.isdecimal() or last == "0" or not all(0 <= x <= 1 for x in coordinates[:-1]):
        return False
    x, y, width, height, *others = coordinates
    is_box = 0 < width <= 2 * min(x, 1 - x) + 1e-5 and 0 < height <= 2 * min(y, 1 - y) + 1e-5
    return last != "1" or (is_box and len(others) == 2)


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

    A line has the class, the box or the outline of the largest piece of a mask, then score and
    track id if requested. Masks with fewer than three corners are written as their box.

    Args:
        found: in pixels of an image (height, width); lines have fractions of its sides.
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
    return xyxy_to_cxcywh(found.boxes_xyxy.astype(np.float64)).reshape(-1, 2, 2)


def _outlines(found: Segmentations, image_size: tuple[int, int]) -> list[np.ndarray]:
    """Return the corners of each object, (N, 2) float64 x and y in pixels."""
    outlines = []
    for runs, box in zip(found.masks.rows(), found.boxes_xyxy, strict=True):
        corners = outline_of_runs(runs, image_size)
        if len(corners) < FEWEST_CORNERS:
            corners = corners_of(box)
        outlines.append(corners.astype(np.float64))
    return outlines


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.6g}"
