"""Label Studio's JSON export: a list of tasks, each with an image and its regions.

Source: labelstud.io/guide/task_format, and the pages of the tags RectangleLabels, PolygonLabels,
EllipseLabels and BrushLabels.
"""

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np

from duet.utils.data.formats.outlines import ellipse_outline, turned, within
from duet.utils.data.sources.formats.format import (
    LARGEST,
    NORMALISED,
    AnnotatedFolder,
    Box,
    FileNotes,
    Format,
    ImageLabels,
    read_head,
    read_numbers,
    read_points,
)
from duet.utils.data.sources.formats.names import FileNames, find_files, listed_in
from duet.utils.errors import brief
from duet.utils.files.json_files import read_json
from duet.utils.geometry.boxes import corners_of
from duet.utils.image_limits import IMAGE_SUFFIXES
from duet.utils.text import count

NAME = "Label Studio JSON"
MAX_BYTES = 1 << 29
MOST_LABELS = 20  # per region
MAX_SOURCE_LENGTH = 4096  # characters; an image inside the export is far longer
_HEAD_BYTES = 1 << 16
# Keys of a task, the second in older versions; the others are JSON-MIN's, which is refused.
_MARKS = (b'"annotations"', b'"completions"', b'"annotation_id"', b'"original_width"')
_LEFT_OUT = {
    "brushlabels": "brush strokes",
    "keypointlabels": "keypoints",
    "vectorlabels": "lines",
    "videorectangle": "video tracks",
}
_UPLOADED = re.compile(r"^[0-9a-f]{8}-(?=.)")  # put before the name of a file that is uploaded
_UPLOADS = re.compile(r"^(.*/)?data/upload/(\d+/)?", re.DOTALL)  # Label Studio's own folders
_NOT_KEPT = re.compile(r"[^-\w.]")  # characters that are removed then


def accepts(path: Path) -> bool:
    head = read_head(path, _HEAD_BYTES)
    is_list = b"".join(head[:200].split()).startswith(b"[{")
    return is_list and any(mark in head for mark in _MARKS)


def read(folder: AnnotatedFolder, notes: FileNotes) -> Iterator[ImageLabels]:
    """Read the labelled tasks.

    The annotation marked as ground truth counts, else the newest that was not cancelled.
    Predictions, brush strokes, keypoints and regions without a label are left out.

    OSError, ValueError: it cannot be read, or is no list of tasks.
    """
    images = FileNames(folder.images, alias=as_uploaded)
    is_listed = listed_in(folder.image_list, images)
    for called, source, regions in _labelled(_document(folder.annotations), notes):
        path, trouble = _file_of(source, images)
        if not is_listed(path):
            continue
        image = ImageLabels(path, NORMALISED, called)
        if trouble:
            image.refuse(f"{called}: {trouble}")
        else:
            _add_regions(image, regions)
        yield image


def _document(path: Path) -> list[dict[str, object]]:
    try:
        document = read_json(path, MAX_BYTES)
    except ValueError as error:
        raise ValueError(f"not JSON: {error!s:.300}") from error
    if not isinstance(document, list) or not all(isinstance(task, dict) for task in document):
        raise ValueError("not a list of Label Studio tasks")
    return document


def _labelled(
    document: list[dict[str, Any]], notes: FileNotes
) -> Iterator[tuple[str, str, list[dict[str, object]]]]:
    """Yield of each task its name in messages, its image and the regions of its best annotation."""
    for position, item in enumerate(document):
        called = f"task {brief(item.get('id', position))}"
        if not isinstance(item.get("data"), dict):
            raise ValueError(
                f"{called} has no 'data'; export from Label Studio as JSON, not JSON-MIN"
            )
        made = item.get("annotations", item.get("completions"))
        valid = [
            ((bool(one.get("ground_truth")), _when(one)), one["result"])
            for one in (made if isinstance(made, list) else [])
            if isinstance(one, dict)
            and not one.get("was_cancelled")
            and isinstance(one.get("result"), list)
        ]
        if not valid:
            notes.left_out["tasks that nobody has labelled"] += 1
            continue
        _, regions = max(reversed(valid), key=lambda found: found[0])  # the last of equals
        yield called, _image_of(item["data"]), [one for one in regions if isinstance(one, dict)]


def _when(item: dict[str, object]) -> str:
    """Return when it was last changed, as text that sorts by time."""
    when = item.get("updated_at") or item.get("created_at")
    return when if isinstance(when, str) else ""


def _image_of(data: dict[str, object]) -> str:
    """Return the image of a task, under "image" or whatever name the labelling interface has."""
    texts = {name: value for name, value in data.items() if isinstance(value, str)}
    ends = tuple(IMAGE_SUFFIXES)
    named = (
        text
        for text in texts.values()
        if text.lower().endswith(ends) or text.partition("?")[0].lower().endswith(ends)
    )
    return texts["image"] if "image" in texts else next(named, "")


def _file_of(source: str, images: FileNames) -> tuple[Path, str]:
    """Return the file of an image, and "" or why it is not known."""
    if 0 < len(source) <= MAX_SOURCE_LENGTH and not source.startswith("data:"):
        return images.find(names_of(source))
    text = brief(source) if source else "not there"
    return images.folder / "?", f"its image is {text}; accepted: the name of a file"


def names_of(source: str) -> Iterator[str]:
    """Yield possible names of an image's file; a name may have any character.

    source: "/data/upload/1/0123abcd-name.jpg", "/data/local-files/?d=folder/name.jpg",
    "s3://bucket/name.jpg", "https://host/name.jpg?X-Amz=..." and the like.
    """
    text = (source.partition("?d=")[2] or source).replace("\\", "/").replace("\0", "")
    cut = text.partition("?")[0]
    for form in dict.fromkeys((text, unquote(text), cut, unquote(cut))):
        name = _UPLOADS.sub("", form)
        yield name
        folder, slash, base = name.rpartition("/")
        if (plain := _UPLOADED.sub("", base)) != base:
            yield folder + slash + plain


def as_uploaded(name: str) -> str:
    """Return the name of an uploaded file without the prefix that Label Studio adds."""
    return _NOT_KEPT.sub("", name.strip().replace(" ", "_"))


def _add_regions(image: ImageLabels, regions: list[dict[str, object]]) -> None:
    """Add the regions with a label; a box and its label may be two of the same id."""
    try:
        image.size = next(filter(None, map(_size_of, regions)), NORMALISED)
    except ValueError as error:
        return image.refuse(f"{image.called}: {error}")
    ids, others = set(), []
    for region in regions:
        if not isinstance(value := region.get("value"), dict):
            continue  # a relation of two regions
        kind, labels = _labels_of(value)
        if labels:
            ids.add(brief(region.get("id")))
            try:
                _add_region(image, kind, labels, value, region.get("image_rotation"))
            except ValueError as error:
                image.refuse(f"{image.called}: {error}")
        elif not {"x", "points", "rle"}.isdisjoint(value):
            others.append(region.get("id"))
    alone = [other for other in others if other is None or brief(other) not in ids]
    image.left_out += ["regions without a label"] * len(alone)


def _size_of(region: dict[str, object]) -> tuple[int, int] | None:
    """Return (height, width) of the image as it was labelled, if the region has it."""
    sides: list[Any] = [region.get("original_height"), region.get("original_width")]
    if sides == [None, None]:
        return None
    if not all(type(side) in (int, float) and 0.5 < side <= LARGEST for side in sides):
        raise ValueError(f"original_height and original_width are {brief(sides)}")
    height, width = map(round, sides)
    return height, width


def _labels_of(value: dict[str, object]) -> tuple[str, list[str]]:
    for kind, labels in value.items():
        if isinstance(labels, list) and kind.endswith("labels"):
            return kind, [label for label in labels if isinstance(label, str)]
    return "", []


def _add_region(
    image: ImageLabels, kind: str, labels: list[str], value: dict[str, object], turn: object
) -> None:
    """Add a region; `turn` are the degrees by which its image was turned, if it was."""
    if kind in _LEFT_OUT or "rle" in value or "sequence" in value:
        image.left_out.append(_LEFT_OUT.get(kind, "masks and video tracks"))
        return
    if turn:
        raise ValueError(
            f"the image was turned by {brief(turn)} degrees in Label Studio, which is not read; "
            "turn its file and label it again"
        )
    if len(labels) > MOST_LABELS:
        raise ValueError(
            f"a region has {count(len(labels), 'label')}; at most {MOST_LABELS} are read"
        )
    shape = _shape_of(value, image.size)
    for label in labels:
        if isinstance(shape, tuple):
            image.add(label, shape)
        elif len(shape) < 3:
            image.left_out.append("regions outside the image, or of fewer than 3 points")
        else:
            image.add_outline(label, shape)


def _shape_of(value: dict[str, object], size: tuple[int, int]) -> Box | np.ndarray:
    """Return an upright box xyxy in pixels, or the outline (K, 2) of another shape."""
    scale_xy = size[1] / 100, size[0] / 100  # all lengths are percents of the image
    if "points" in value:
        return read_points(value["points"]) * scale_xy
    (degrees,) = read_numbers(value, "rotation") if value.get("rotation") else (0.0,)
    if degrees and size == NORMALISED:
        raise ValueError("a turned region needs original_width and original_height")
    x, y = np.multiply(read_numbers(value, "x", "y"), scale_xy).tolist()
    if "radiusX" in value:
        radii = np.multiply(read_numbers(value, "radiusX", "radiusY"), scale_xy).tolist()
        return within(turned(ellipse_outline((x, y), radii), (x, y), degrees), size)
    width, height = np.multiply(read_numbers(value, "width", "height"), scale_xy).tolist()
    box = x, y, x + width, y + height
    if not degrees:
        return box
    return within(turned(corners_of(np.array(box)), (x, y), degrees), size)


_find = partial(find_files, format_name=NAME, suffix=".json", accepts=accepts)
LABEL_STUDIO = Format(NAME, accepts, _find, read)
