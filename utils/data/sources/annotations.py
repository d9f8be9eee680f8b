"""The label formats that `--data` takes beside YOLO's own; what they read is kept."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import os
import time
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import numpy as np

from utils.data.sources.formats.coco import COCO
from utils.data.sources.formats.format import (
    AnnotatedFolder,
    Annotations,
    FileNotes,
    Format,
    Splits,
    collect,
    unreadable,
)
from utils.data.sources.formats.voc import VOC
from utils.data.sources.scan_memory import Memory
from utils.errors import DatasetError
from utils.files.array_cache import Arrays, state_of_files
from utils.files.json import parse_json
from utils.polygons import Polygons

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
