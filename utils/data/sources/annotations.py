"""The label formats, and annotations in any of them, kept between runs.

COCO's 118,000 images are described in half a gigabyte of JSON, and each run asks for them twice:
for the names of their classes, then for the objects.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from duet.utils.array_cache import state_of_files
from duet.utils.data.sources.formats.coco import COCO
from duet.utils.data.sources.formats.format import (
    AnnotatedFolder,
    Annotations,
    FileNotes,
    Format,
    collect,
    unreadable,
)
from duet.utils.data.sources.formats.voc import VOC
from duet.utils.data.sources.scan_memory import Memory
from duet.utils.errors import DatasetError
from duet.utils.json_files import parse_json
from duet.utils.wings import load_wings

WINGS = ("duet.utils.data.formats",)  # packages with more formats, each in a tuple FORMATS


@cache
def formats() -> tuple[Format, ...]:
    """Return the formats; the first that accepts a path reads it."""
    return (VOC, COCO, *(kind for wing in load_wings(WINGS) for kind in wing.FORMATS))


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

    Raises:
        DatasetError: a file that cannot be read, or is not in its format.
    """
    (reader,) = [kind for kind in formats() if kind.name == folder.format]
    state = _state(folder, reader)
    parts = [os.path.abspath(part) if isinstance(part, Path) else str(part) for part in folder]
    memory = Memory.of("annotations", *parts)
    if state and (kept := memory.read(state)):
        fields: dict[str, Any] = {**parse_json(kept.pop("texts").tobytes()), **kept}
        return Annotations(**fields)
    notes = FileNotes()
    try:
        annotations = collect(reader.read(folder, notes), notes)
    except DatasetError:
        raise
    except (OSError, ValueError) as error:
        raise unreadable(folder.annotations, error) from error
    if state and notes.is_complete:
        found = vars(annotations)
        arrays = {name: part for name, part in found.items() if isinstance(part, np.ndarray)}
        texts = json.dumps({name: part for name, part in found.items() if name not in arrays})
        arrays["texts"] = np.frombuffer(texts.encode(), np.uint8)
        memory.write(arrays, len(annotations), state)
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
