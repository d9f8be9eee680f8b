"""Annotations in any format -> images with labels, of the same shape as those with label files.

What a format read is kept between runs.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from utils.array_cache import Arrays, state_of_files
from utils.data.image.header import BrokenImageError, read_image_size, read_other_view
from utils.data.image.orientation import EXCHANGES_SIDES, UPRIGHT, boxes_upright, points_upright
from utils.data.sources.formats.coco import COCO
from utils.data.sources.formats.format import (
    NORMALISED,
    UNKNOWN,
    AnnotatedFolder,
    Annotations,
    FileNotes,
    Format,
    Splits,
    collect,
    unreadable,
)
from utils.data.sources.formats.voc import VOC
from utils.data.sources.label_file import BrokenLabelError, Labels, require_drawable
from utils.data.sources.scan_memory import Memory
from utils.errors import DatasetError, brief
from utils.json_files import parse_json
from utils.polygons import Polygons
from utils.text import count

OVERSHOOT = 0.01  # of the side: so far outside the image a coordinate is clipped, tools round
WINGS = ("utils.data.formats",)  # packages with more formats, each in a tuple FORMATS


@cache
def formats() -> tuple[Format, ...]:
    """Return the formats; the first that accepts a path reads it."""
    wings = [importlib.import_module(wing) for wing in WINGS if importlib.util.find_spec(wing)]
    return (VOC, COCO, *(kind for wing in wings for kind in wing.FORMATS))


def find_formats(path: Path) -> Iterator[tuple[str, Splits]]:
    """Yield each format in which a dataset folder or annotation file is, with its splits.

    Raises:
        DatasetError: it is in the next format, and cannot be used.
    """
    for kind in formats():
        if found := kind.find(path):
            yield kind.name, found


def format_names() -> str:
    """Return the names of all formats, for messages."""
    return ", ".join(kind.name for kind in formats())


def format_of(annotations: Path) -> str:
    """Return the name of the format of an annotation file or folder.

    Raises:
        DatasetError: it is in none of them.
    """
    for kind in formats():
        if kind.accepts(annotations):
            return kind.name
    raise DatasetError(
        f"{annotations}: no annotations in a format that is read here: {format_names()}"
    )


def read_annotations(folder: AnnotatedFolder) -> Annotations:
    """Read the annotations of a folder; those of many images are kept for the next time.

    COCO's 118,000 images are described in half a gigabyte of JSON, and each run asks for them
    twice: for the names of their classes, then for the objects.

    Raises:
        DatasetError: a file that cannot be read, or is not in its format.
    """
    (reader,) = [kind for kind in formats() if kind.name == folder.format]
    state = _state(folder, reader)
    parts = [os.path.abspath(part) if isinstance(part, Path) else str(part) for part in folder]
    memory = Memory.of("annotations", *parts)
    if state and (kept := memory.read(state)):
        return _annotations_of(kept)
    notes = FileNotes()
    try:
        annotations = collect(reader.read(folder, notes), notes)
    except DatasetError:
        raise
    except (OSError, ValueError) as error:
        raise unreadable(folder.annotations, error) from error
    if state and notes.is_complete:
        memory.write(_arrays_of(annotations), len(annotations), state)
    return annotations


def _state(folder: AnnotatedFolder, reader: Format) -> bytes | None:
    """Return a hash of all that a reader sees; None if a later change may not show.

    That is size and times of the annotations, and the names of the images: which of them are there
    decides what a name in the annotations stands for.
    """
    now_ns = time.time_ns()
    digest = hashlib.blake2b(repr(folder).encode("utf-8", "surrogatepass"))
    for path in filter(None, (folder.annotations, folder.image_list, *reader.also_reads(folder))):
        for files in _files(path):
            state = state_of_files(files, now_ns)
            if state is None:
                return None
            digest.update(state)
    for files in _files(folder.images):
        digest.update("\0".join([*files, ""]).encode("utf-8", "surrogatepass"))
    return digest.digest()


def _files(path: Path) -> Iterator[Sequence[str]]:
    """Yield a file, or the sorted files of a folder and of each folder in it."""
    if not path.is_dir():
        yield [str(path)]
    for place, folders, names in os.walk(path):
        folders.sort()
        yield [os.path.join(place, name) for name in sorted(names)]


def _arrays_of(found: Annotations) -> Arrays:
    texts = [found.class_names, found.paths, [*found.broken.items()], dict(found.left_out)]
    return {
        "texts": np.frombuffer(json.dumps(texts).encode(), np.uint8),
        "sizes": found.sizes,
        "starts": found.starts,
        "class_index": found.class_index,
        "boxes_xyxy": found.boxes_xyxy,
        "points_xy": found.polygons.points_xy,
        "point_starts": found.polygons.starts,
    }


def _annotations_of(arrays: Arrays) -> Annotations:
    class_names, paths, broken, left_out = parse_json(arrays["texts"].tobytes())
    return Annotations(
        tuple(class_names),
        tuple(paths),
        arrays["sizes"],
        arrays["starts"],
        arrays["class_index"],
        arrays["boxes_xyxy"],
        Polygons(arrays["points_xy"], arrays["point_starts"]),
        dict(broken),
        left_out,
    )


class AnnotatedObjects(NamedTuple):
    """The objects of an image, normalised; they may lie outside it, and have no area."""

    class_index: np.ndarray  # (M,) int64, of the dataset's classes
    boxes_xyxy_norm: np.ndarray  # (M, 4) float64
    polygons_norm: Polygons | None  # float64, of the M objects; None when all are boxes


@dataclass(frozen=True)
class AnnotatedImage:
    """An image whose objects an annotation file names; of the same shape as `labels.ImageFile`."""

    annotations: Annotations
    index: int
    class_of: np.ndarray  # int64, the dataset's class of each class of the annotations
    file: Path  # of the annotations, for messages
    place = None

    @property
    def path(self) -> Path:
        return Path(self.annotations.paths[self.index])

    @property
    def labels_at(self) -> str:
        return f"{self.file}: {self.path.name}"

    def state(self, now_ns: int) -> bytes | None:
        """Return size and times of the image file, and all that is said of it."""
        file = state_of_files((self.annotations.paths[self.index],), now_ns)
        if file is None:
            return None
        first, end = self.annotations.starts[self.index : self.index + 2].tolist()
        polygons = self.annotations.polygons.range(first, end)
        said = (
            self.annotations.sizes[self.index],
            self.class_of[self.annotations.class_index[first:end]],
            self.annotations.boxes_xyxy[first:end],
            *((polygons.starts, polygons.points_xy) if polygons is not None else ()),
        )
        reason = self.annotations.broken.get(self.index, "")
        text = f"{self.labels_at}\0{end - first} {reason}\0".encode("utf-8", "surrogatepass")
        return b"".join([file, text, *(array.tobytes() for array in said)])

    def read_size(self, max_pixels: int) -> tuple[int, int]:
        """Return (height, width) in pixels, or raise BrokenImageError."""
        return read_image_size(self.path, max_pixels)

    def read_labels(self, num_classes: int, size: tuple[int, int]) -> Labels:
        """Return the objects; those without an area, and repeated ones, are removed.

        Raises:
            BrokenLabelError: the annotation is of an image of another shape, a box reaches far
                out of the image, or the reader of the format found fault.
        """
        class_index, boxes, polygons = self.read_objects(size)
        boxes = _clipped(boxes)
        if polygons is not None:
            points = _clipped(polygons.points_xy)
            polygons = Polygons(points.astype(np.float32), polygons.starts)
        return _labels(class_index, boxes, polygons)

    def read_objects(self, size: tuple[int, int]) -> AnnotatedObjects:
        """Return the objects of an image of that size as they were labelled; nothing is removed.

        Raises:
            BrokenLabelError: the annotation is of an image of another shape, or the reader of the
                format found fault.
        """
        if reason := self.annotations.broken.get(self.index):
            raise BrokenLabelError(reason)
        first, end = self.annotations.starts[self.index : self.index + 2].tolist()
        annotated_size, orientation = self._annotated_view(size)
        side_wh = np.array(annotated_size[::-1])
        boxes = self.annotations.boxes_xyxy[first:end] / np.tile(side_wh, 2)
        polygons = self.annotations.polygons.range(first, end)
        if polygons is not None:
            points = points_upright(polygons.points_xy / side_wh, orientation)
            polygons = Polygons(points, polygons.starts)
        return AnnotatedObjects(
            self.class_of[self.annotations.class_index[first:end]],
            boxes_upright(boxes, orientation),
            polygons,
        )

    def _annotated_view(self, size: tuple[int, int]) -> tuple[tuple[int, int], int]:
        """Return (height, width) to which the coordinates are relative, and what turns them.

        That is an EXIF orientation. Some tools label an image as it is stored, and not as its EXIF
        turns it. It shows where the sides are exchanged; what keeps them, and coordinates without a
        size, count as labelled upright, as browsers show the image.
        """
        height, width = annotated = tuple(self.annotations.sizes[self.index].tolist())
        if annotated == NORMALISED:
            return NORMALISED, UPRIGHT
        if annotated == UNKNOWN:
            return size, UPRIGHT
        exchanged = size[::-1]
        if annotated == exchanged != size or (
            _same_shape(annotated, exchanged) and not _same_shape(annotated, size)
        ):
            orientation = self._other_view()
            if orientation in EXCHANGES_SIDES:
                return annotated, orientation
        if not _same_shape(annotated, size):
            raise BrokenLabelError(
                f"it was labelled as an image of {width}x{height} px, and has {size[1]}x{size[0]}"
            )
        return annotated, UPRIGHT

    def _other_view(self) -> int:
        try:
            return read_other_view(self.path)
        except BrokenImageError as error:  # it could be read a moment ago
            raise BrokenLabelError(str(error)) from error


def _same_shape(annotated: tuple[int, int], size: tuple[int, int]) -> bool:
    """Return whether one may be a smaller copy of the other: of its shape, but for rounding."""
    return abs(annotated[0] * size[1] - annotated[1] * size[0]) <= max(*annotated, *size)


def _clipped(coordinates_norm: np.ndarray) -> np.ndarray:
    """Return normalised coordinates within the image, (..., 2) or (..., 4)."""
    far = ~((coordinates_norm >= -OVERSHOOT) & (coordinates_norm <= 1 + OVERSHOOT))  # NaN too
    if far.any():
        value = coordinates_norm[far][0]
        raise BrokenLabelError(
            f"an object lies outside the image, at {value:.3g} of its side; "
            "correct it, or label this file again if it was exchanged"
        )
    return coordinates_norm.clip(0, 1)


def _labels(class_index: np.ndarray, boxes_xyxy: np.ndarray, polygons: Polygons | None) -> Labels:
    """Return labels of normalised boxes; those without an area and repeated ones are removed."""
    sizes = boxes_xyxy[:, 2:] - boxes_xyxy[:, :2]
    centres = (boxes_xyxy[:, :2] + boxes_xyxy[:, 2:]) / 2
    table = np.column_stack([class_index, centres, sizes])
    has_area = (sizes > 0).all(axis=1)
    _, first = np.unique(table, axis=0, return_index=True)
    is_first = np.isin(np.arange(len(table)), first)
    kept = np.flatnonzero(has_area & is_first)
    removed = {
        count(int((~has_area).sum()), "object") + " without an area": not has_area.all(),
        count(int((~is_first & has_area).sum()), "repeated object"): not is_first[has_area].all(),
    }
    chosen = None if polygons is None else polygons.select(kept).range(0, len(kept))
    require_drawable(chosen)
    return Labels(
        class_index[kept],
        table[kept, 1:].astype(np.float32),
        chosen,
        ", ".join(text for text, found in removed.items() if found),
    )


def annotated_images(
    annotations: Annotations, class_names: Sequence[str], file: Path
) -> list[AnnotatedImage]:
    """Return the images of annotations, with their objects' classes those of a dataset.

    Args:
        class_names: of the dataset.
        file: the annotation file or folder, for messages.

    Raises:
        DatasetError: the dataset lacks a class of the annotations.
    """
    index_of = {name: index for index, name in enumerate(class_names)}
    if absent := sorted(set(annotations.class_names) - set(index_of)):
        raise DatasetError(
            f"{file}: has objects of class {brief(absent[0])}, and the dataset's names are "
            f"{brief(list(class_names))}; add it to 'names', or leave 'names' out"
        )
    class_of = np.array([index_of[name] for name in annotations.class_names], np.int64)
    return [AnnotatedImage(annotations, index, class_of, file) for index in range(len(annotations))]
