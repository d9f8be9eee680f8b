"""The table of label formats, annotations in any of them, and the images that they label."""

import json
import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from duet.backend.system import collector_paused
from duet.utils.data.sources.formats.coco import COCO
from duet.utils.data.sources.formats.format import (
    NORMALISED,
    UNKNOWN,
    AnnotatedFolder,
    Annotations,
    FileNotes,
    Format,
    collect,
)
from duet.utils.data.sources.formats.voc import VOC
from duet.utils.data.sources.image_sources import ImageSource
from duet.utils.data.sources.label_file import (
    BrokenLabelError,
    Labels,
    require_drawable,
    usable_labels,
)
from duet.utils.data.sources.remarks import Remark
from duet.utils.data.sources.scan import FEWEST_IMAGES, Memory, version_of_readers
from duet.utils.errors import DatasetError, brief
from duet.utils.files.array_cache import read_arrays, state_of_files, write_arrays
from duet.utils.files.json_files import parse_json
from duet.utils.geometry.boxes import Polygons, xyxy_to_cxcywh
from duet.utils.optional import load_wings
from duet.utils.text import printable

log = logging.getLogger("data")

OVERSHOOT = 0.01  # fraction of the side; coordinates up to this far outside are clipped
WINGS = ("duet.utils.data.formats",)  # packages with more formats, each in a tuple FORMATS
KEPT_KIND = "annotations"  # in the user's cache folder
_MOST_PROBED = 64  # images
_KEPT_TEXTS = ("class_names", "paths", "broken", "left_out")
_KEPT_ARRAYS = ("sizes", "starts", "class_index", "boxes_xyxy")


@cache
def formats() -> tuple[Format, ...]:
    """Return the formats; the first that accepts a path reads it."""
    return (VOC, COCO, *(kind for wing in load_wings(WINGS) for kind in wing.FORMATS))


def format_names() -> str:
    return ", ".join(kind.name for kind in formats())


def format_of(annotations: Path) -> str:
    """Return the name of the format of an annotation file or folder.

    DatasetError: no format accepts it.
    """
    for kind in formats():
        if kind.accepts(annotations):
            return kind.name
    raise DatasetError(
        f"{annotations}: no annotations in a format that is read here: {format_names()}"
    )


@collector_paused()
def read_annotations(folder: AnnotatedFolder) -> Annotations:
    """Read the annotations of a folder; DatasetError for an unreadable file."""
    (reader,) = [kind for kind in formats() if kind.name == folder.format]
    notes = FileNotes()
    try:
        if reader is COCO:
            return recall_annotations(folder, notes, partial(_read, reader, folder, notes))
        return _read(reader, folder, notes)
    except DatasetError:
        raise
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise DatasetError(f"{folder.annotations}: {reason}") from error


def _read(reader: Format, folder: AnnotatedFolder, notes: FileNotes) -> Annotations:
    annotations = collect(reader.read(folder, notes), notes)
    for text in notes.warnings:
        log.warning("%s: %s", printable(str(folder.annotations)), text)
    return annotations


def recall_annotations(
    folder: AnnotatedFolder, notes: FileNotes, read: Callable[[], Annotations]
) -> Annotations:
    """Return the annotations of a file; large files are read once.

    They are read anew when the file, the list of images or the places of its images change, and
    each time if there is a warning to log.
    """
    state = state_of_files([str(folder.annotations), str(folder.image_list)], time.time_ns())
    if state is None:  # changed a moment ago
        return read()
    parts = [None if part is None else os.path.abspath(str(part)) for part in folder[1:4]]
    name = Memory.of(KEPT_KIND, *parts, folder.subset, folder.is_shared).name
    kept = read_arrays(KEPT_KIND, name, version_of_readers() + state)
    if kept is not None:
        texts = parse_json(kept["texts"].tobytes())
        if _num_present(texts["paths"]) == kept["present"]:
            polygons = Polygons(kept["points"], kept["point_starts"])
            fields: dict[str, Any] = {**texts, **{field: kept[field] for field in _KEPT_ARRAYS}}
            return Annotations(**fields, polygons=polygons)
    found = read()
    if len(found) >= FEWEST_IMAGES and not notes.warnings:
        text = json.dumps({field: getattr(found, field) for field in _KEPT_TEXTS})
        arrays = {
            "texts": np.frombuffer(text.encode(), np.uint8),
            "present": np.array(_num_present(found.paths)),
            "points": found.polygons.points_xy,
            "point_starts": found.polygons.starts,
            **{field: getattr(found, field) for field in _KEPT_ARRAYS},
        }
        write_arrays(KEPT_KIND, name, version_of_readers() + state, arrays)
    return found


def _num_present(paths: Sequence[str]) -> int:
    """Return how many of some images exist: it decides in which folders they are looked for."""
    return sum(map(os.path.exists, paths[:: max(1, len(paths) // _MOST_PROBED)]))


@dataclass(frozen=True, slots=True)
class AnnotatedImage(ImageSource):
    annotations: Annotations
    index: int
    class_of: np.ndarray  # int64, the dataset's class of each class of the annotations
    file: Path  # the annotation file, for messages

    @property
    def labels_at(self) -> str:
        return f"{self.file}: {self.path.name}"

    def remarks(self, num_objects: int) -> list[Remark]:
        texts = self.annotations.exchanged.get(self.index, ())
        return [Remark("exchanged_corners", f"{self.labels_at}: {text}") for text in texts]

    def state(self, now_ns: int) -> bytes | None:
        """Return size and times of the image file, and all its annotations."""
        file = state_of_files((str(self.path),), now_ns)
        if file is None:
            return None
        class_index, boxes_xyxy, polygons = self.annotations.objects(self.index)
        outlines = () if polygons is None else (polygons.starts, polygons.points_xy)
        own = self.annotations.sizes[self.index], self.class_of[class_index], boxes_xyxy, *outlines
        reason = self.annotations.broken[self.index] + str(self.remarks(0))
        text = f"{self.labels_at}\0{len(boxes_xyxy)} {reason}\0".encode("utf-8", "surrogatepass")
        return b"".join([file, text, *(array.tobytes() for array in own)])

    def label_bytes(self) -> bytes | None:
        return None if self.index in self.annotations.unlabelled else b""

    def read_labels(self, num_classes: int, size: tuple[int, int]) -> Labels:
        """Return the objects; those without an area, and repeated ones, are removed.

        BrokenLabelError: a box reaches far out of the image, or as `read_objects`.
        """
        class_index, boxes, polygons = self.read_objects(size)
        boxes = _clipped(boxes)
        if polygons is not None:
            points = _clipped(polygons.points_xy)
            polygons = Polygons(points.astype(np.float32), polygons.starts)
            require_drawable(polygons.moved(size[::-1]), size)
        return usable_labels(class_index, xyxy_to_cxcywh(boxes), polygons)

    def read_objects(self, size: tuple[int, int]) -> tuple[np.ndarray, np.ndarray, Polygons | None]:
        """Return the objects of an image of that size as they were labelled; nothing is removed.

        They may lie outside the image, and have no area.

        Returns:
            (M,) int64 classes of the dataset, (M, 4) float64 boxes xyxy and the polygons, both
            normalised; None for polygons if all are boxes.

        BrokenLabelError: the annotated image has another shape, or the format's reader found a
        fault.
        """
        if reason := self.annotations.broken[self.index]:
            raise BrokenLabelError(reason)
        class_index, boxes_xyxy, polygons = self.annotations.objects(self.index)
        side_wh = np.array(self._annotated_size(size)[::-1])
        if polygons is not None:
            polygons = Polygons(polygons.points_xy / side_wh, polygons.starts)
        boxes = boxes_xyxy / np.tile(side_wh, 2)
        return self.class_of[class_index], boxes, polygons

    def _annotated_size(self, size: tuple[int, int]) -> tuple[int, int]:
        """Return the (height, width) to which the coordinates are relative."""
        height, width = annotated = tuple(self.annotations.sizes[self.index].tolist())
        if annotated in (NORMALISED, UNKNOWN):
            return NORMALISED if annotated == NORMALISED else size
        if not _same_shape(annotated, size):
            raise BrokenLabelError(
                f"it was labelled as an image of {width}x{height} px, and has {size[1]}x{size[0]}; "
                "find the image that was labelled, or label it as a browser shows it",
                "other_shape",
            )
        return annotated


def _same_shape(annotated: tuple[int, int], size: tuple[int, int]) -> bool:
    """Return whether one may be a resized copy of the other: equal aspect up to rounding."""
    return abs(annotated[0] * size[1] - annotated[1] * size[0]) <= max(*annotated, *size)


def _clipped(coordinates_norm: np.ndarray) -> np.ndarray:
    """Return normalised coordinates within the image, (..., 2) or (..., 4)."""
    far = ~((coordinates_norm >= -OVERSHOOT) & (coordinates_norm <= 1 + OVERSHOOT))  # NaN too
    if far.any():
        value = coordinates_norm[far][0]
        raise BrokenLabelError(
            f"an object lies outside the image, at {value:.3g} of its side; "
            "correct it, or label this file again if it was exchanged",
            "out_of_range",
        )
    return coordinates_norm.clip(0, 1)


def annotated_images(
    annotations: Annotations, class_names: Sequence[str], file: Path
) -> list[AnnotatedImage]:
    """Return the images of annotations, their classes by the numbers of a dataset's names.

    file: the annotation file or folder, for messages. DatasetError: an unknown class.
    """
    index_of = {name: index for index, name in enumerate(class_names)}
    if absent := sorted(set(annotations.class_names) - set(index_of)):
        raise DatasetError(
            f"{file}: has objects of class {brief(absent[0])}, and the dataset's names are "
            f"{brief(list(class_names))}; add it to 'names', count it as another class with "
            "the key 'merge', or leave 'names' out"
        )
    class_of = np.array([index_of[name] for name in annotations.class_names], np.int64)
    return [
        AnnotatedImage(Path(path), annotations, index, class_of, file)
        for index, path in enumerate(annotations.paths)
    ]
