"""Label Studio's JSON and JSON-MIN exports: a list of tasks, each with an image and its regions.

Before: `table.py`. After: `annotations.py`.

Source: labelstud.io/guide/task_format, and the pages of the tags RectangleLabels, PolygonLabels,
EllipseLabels and BrushLabels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from backend.words import count
from utils.data.image.limits import IMAGE_SUFFIXES
from utils.data.sources.formats.annotations import NORMALISED, Annotations, AnnotationsBuilder
from utils.data.sources.formats.folders import find_files
from utils.data.sources.formats.format import AnnotatedFolder, Format
from utils.data.sources.formats.image_names import ImageNames, listed_in
from utils.data.sources.formats.outlines import box_outline, ellipse_outline, turned, within
from utils.data.sources.formats.uploads import as_uploaded, names_of
from utils.errors import DatasetError, brief
from utils.files.json import read_json
from utils.files.regular import open_regular

NAME = "Label Studio JSON"
MAX_BYTES = 1 << 29
MOST_LABELS = 20  # of a region
MAX_SOURCE_LENGTH = 4096  # characters; an image inside the export is far longer
_HEAD_BYTES = 1 << 16
# Of a task; the third is of an older version, the others of JSON-MIN.
_MARKS = (b'"annotations"', b'"completions"', b'"annotation_id"', b'"original_width"')
_LEFT_OUT = {
    "brushlabels": "brush strokes",
    "keypointlabels": "keypoints",
    "vectorlabels": "lines",
    "videorectangle": "video tracks",
}


class _UnreadableError(Exception):
    """Why a task cannot be used."""


class _Task(NamedTuple):
    """An image as one person has labelled it."""

    number: Any  # Label Studio's own
    image: str  # where Label Studio has it
    regions: list[Any]
    rank: tuple[bool, str]  # of several of one image the highest counts: ground truth, then newest


class _Region(NamedTuple):
    """A region that has a label."""

    kind: str  # "rectanglelabels"
    labels: list[str]
    value: dict[str, Any]
    whole: dict[str, Any]  # with the size of the image, and whether it was turned


def accepts(path: Path) -> bool:
    """Return whether a JSON file begins as a list of tasks does."""
    try:
        with open_regular(path) as file:
            head = file.read(_HEAD_BYTES).removeprefix(b"\xef\xbb\xbf")
    except OSError:
        return False
    is_list = b"".join(head[:200].split()).startswith(b"[{")
    return is_list and any(mark in head for mark in _MARKS)


def find(path: Path) -> Mapping[str, list[AnnotatedFolder]]:
    """Return the splits of a folder, or of one JSON file."""
    return find_files(path, NAME, ".json", accepts)


def read(folder: AnnotatedFolder) -> Annotations:
    """Read the tasks that somebody has labelled.

    Of several annotations of a task the one marked as ground truth counts, else the newest that
    was not cancelled. Predictions are no labels. Brush strokes, keypoints and regions without a
    label are left out.

    Raises:
        DatasetError: a file that cannot be read, or is no list of tasks.
    """
    try:
        document = read_json(folder.annotations, MAX_BYTES)
    except OSError as error:
        raise DatasetError(f"{folder.annotations}: {error.strerror}") from error
    except ValueError as error:
        raise DatasetError(f"{folder.annotations}: not JSON: {error!s:.300}") from error
    if not isinstance(document, list) or not all(isinstance(task, dict) for task in document):
        raise DatasetError(f"{folder.annotations}: a list of Label Studio's tasks is needed")
    builder = AnnotationsBuilder()
    images = ImageNames(folder.images, as_uploaded)
    is_listed = listed_in(folder.image_list, folder.images)
    best: dict[tuple[Path, str], tuple[_Task, str]] = {}  # by the file and the name in the task
    for position, task in enumerate(_labelled(document, builder)):
        path, name, trouble = _file_of(task.image, folder.images, images)
        if not is_listed(path):
            continue
        key = path, f"\0{position}" if trouble else name
        other, _ = best.get(key, (task, ""))
        if other is not task:
            builder.leave_out("other annotations of an image")
        if other.rank <= task.rank:
            best[key] = task, trouble
    for (path, _), (task, trouble) in best.items():
        _add_task(builder, path, trouble, task)
    return builder.build()


def _labelled(document: list[dict[str, Any]], builder: AnnotationsBuilder) -> Iterator[_Task]:
    """Yield each task, as its best annotation has it; those without one are left out.

    JSON-MIN has an item for each annotation of a task.
    """
    for position, item in enumerate(document):
        number = item.get("id", position)
        if not isinstance(item.get("data"), dict):
            yield _Task(number, _image_of(item), _small_regions(item), (False, _when(item)))
        elif task := _of_task(item, number):
            yield task
        else:
            builder.leave_out("tasks that nobody has labelled")


def _of_task(item: dict[str, Any], number: Any) -> _Task | None:
    made = item.get("annotations", item.get("completions"))
    valid = [
        annotation
        for annotation in (made if isinstance(made, list) else [])
        if isinstance(annotation, dict)
        and not annotation.get("was_cancelled")
        and isinstance(annotation.get("result"), list)
    ]
    ranked = [
        ((bool(one.get("ground_truth")), _when(one)), index) for index, one in enumerate(valid)
    ]
    if not ranked:
        return None
    rank, best = max(ranked)
    return _Task(number, _image_of(item["data"]), valid[best]["result"], rank)


def _when(item: dict[str, Any]) -> str:
    """Return when it was last changed, as text that sorts by time."""
    when = item.get("updated_at") or item.get("created_at")
    return when if isinstance(when, str) else ""


def _image_of(data: dict[str, Any]) -> str:
    """Return the image of a task, under "image" or whatever name the labelling interface has."""
    texts = {name: value for name, value in data.items() if isinstance(value, str)}
    if "image" in texts:
        return texts["image"]
    ends = tuple(IMAGE_SUFFIXES)
    return next(
        (
            text
            for text in texts.values()
            if text.lower().endswith(ends) or text.partition("?")[0].lower().endswith(ends)
        ),
        "",
    )


def _small_regions(item: dict[str, Any]) -> list[Any]:
    """Return the regions of an item of JSON-MIN, in the form of the other export."""
    lists = (value for value in item.values() if isinstance(value, list))
    parts = [part for values in lists for part in values if isinstance(part, dict)]
    return [{**part, "value": part} for part in parts]


def _file_of(source: str, folder: Path, images: ImageNames) -> tuple[Path, str, str]:
    """Return the file of an image, its name in the task, and "", or what is the trouble with it."""
    if 0 < len(source) <= MAX_SOURCE_LENGTH and not source.startswith("data:"):
        names = [*names_of(source)]
        path, trouble = images.find(names)
        return path, str(names[-1]), trouble
    text = brief(source) if source else "not there"
    return folder / "?", "", f"its image is {text}; the name of a file is needed"


def _add_task(builder: AnnotationsBuilder, path: Path, trouble: str, task: _Task) -> None:
    called = f"task {brief(task.number)}"
    size, regions = NORMALISED, [region for region in task.regions if isinstance(region, dict)]
    try:
        size = next(filter(None, map(_size_of, regions)), size)
    except _UnreadableError as error:
        builder.image(path, called=called, trouble=trouble and f"{called}: {trouble}")
        builder.refuse(f"{called}: {error}")
        return
    builder.image(path, size, called, trouble and f"{called}: {trouble}")
    if trouble:
        return
    for region in _named(builder, regions):
        try:
            _add_region(builder, region, size)
        except _UnreadableError as error:
            builder.refuse(f"{called}: {error}")


def _named(builder: AnnotationsBuilder, regions: list[dict[str, Any]]) -> list[_Region]:
    """Return the regions with a label; a box and its label may be two of the same id."""
    named, others = [], []
    for region in regions:
        if isinstance(value := region.get("value"), dict):  # none of a relation of two regions
            kind, labels = _labels_of(value)
            if labels:
                named.append(_Region(kind, labels, value, region))
            elif not {"x", "points", "rle"}.isdisjoint(value):
                others.append(region.get("id"))
    ids = {brief(region.whole.get("id")) for region in named} if others else set()
    for other in others:
        if other is None or brief(other) not in ids:
            builder.leave_out("regions without a label")
    return named


def _size_of(region: dict[str, Any]) -> tuple[int, int] | None:
    """Return (height, width) of the image as it was labelled, if the region says it."""
    sides: list[Any] = [region.get("original_height"), region.get("original_width")]
    if sides == [None, None]:
        return None
    height, width = (round(side) if _is_number(side) else 0 for side in sides)
    if not (0 < height < 1 << 31 and 0 < width < 1 << 31):
        raise _UnreadableError(f"original_height and original_width are {brief(sides)}")
    return height, width


def _add_region(builder: AnnotationsBuilder, region: _Region, size: tuple[int, int]) -> None:
    if region.kind in _LEFT_OUT or "rle" in region.value or "sequence" in region.value:
        builder.leave_out(_LEFT_OUT.get(region.kind, "masks and video tracks"))
        return
    if turn := region.whole.get("image_rotation"):
        raise _UnreadableError(
            f"the image was turned by {brief(turn)} degrees in Label Studio, which is not read; "
            "turn its file and label it again"
        )
    if len(region.labels) > MOST_LABELS:
        number = count(len(region.labels), "label")
        raise _UnreadableError(f"a region has {number}; at most {MOST_LABELS} are read")
    shape = _shape_of(region.value, size)
    for label in region.labels:
        if isinstance(shape, tuple):
            builder.object(label, shape)
        elif len(shape) < 3:
            builder.leave_out("regions outside the image, or of fewer than 3 points")
        else:
            builder.outline(label, shape)


def _labels_of(value: dict[str, Any]) -> tuple[str, list[str]]:
    """Return the kind of a region, "rectanglelabels", and its labels; none if it has no kind."""
    for kind, labels in value.items():
        if isinstance(labels, list) and kind.endswith("labels"):
            return kind, [label for label in labels if isinstance(label, str)]
    return "", []


def _shape_of(
    value: dict[str, Any], size: tuple[int, int]
) -> tuple[float, float, float, float] | np.ndarray:
    """Return an upright box xyxy in pixels, or the outline (K, 2) of another shape."""
    scale_x, scale_y = size[1] / 100, size[0] / 100  # all lengths are percents of the image
    if "points" in value:
        return _points(value["points"]) * (scale_x, scale_y)
    degrees = _number(value, "rotation") if value.get("rotation") else 0.0
    if degrees and size == NORMALISED:
        raise _UnreadableError("a turned region needs original_width and original_height")
    x, y = _number(value, "x") * scale_x, _number(value, "y") * scale_y
    if "radiusX" in value:
        radii = _number(value, "radiusX") * scale_x, _number(value, "radiusY") * scale_y
        return within(turned(ellipse_outline((x, y), radii), (x, y), degrees), size)
    width, height = _number(value, "width") * scale_x, _number(value, "height") * scale_y
    if not degrees:
        return x, y, x + width, y + height
    return within(turned(box_outline(x, y, width, height), (x, y), degrees), size)


def _number(value: dict[str, Any], name: str) -> float:
    number: Any = value.get(name)
    if not _is_number(number):
        raise _UnreadableError(f"{name} is {brief(number)} in a region; a number is needed")
    return float(number)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _points(points: Any) -> np.ndarray:
    try:
        found = np.array(points, np.float64)
    except (TypeError, ValueError):
        found = np.array(np.nan)
    if found.ndim != 2 or found.shape[1] != 2 or not np.isfinite(found).all():
        raise _UnreadableError(f"points are {brief(points)} in a region; pairs x, y are needed")
    return found


LABEL_STUDIO = Format(NAME, accepts, find, read)
