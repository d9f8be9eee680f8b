"""Annotations of many images in one file, kept in the user's cache folder until it changes.

The JSON of COCO's train2017 has half a gigabyte, and each start needs it twice: for the names of
the classes, then for the objects.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from duet.utils.data.sources.formats.format import AnnotatedFolder, Annotations, FileNotes
from duet.utils.data.sources.scan_memory import FEWEST_IMAGES, Memory, version_of_readers
from duet.utils.files.array_cache import read_arrays, state_of_files, write_arrays
from duet.utils.files.json_files import parse_json
from duet.utils.geometry.ragged import Polygons

KIND = "annotations"
_MOST_PROBED = 64  # images
_TEXTS = ("class_names", "paths", "broken", "left_out")
_ARRAYS = ("sizes", "starts", "class_index", "boxes_xyxy")


def recall_annotations(
    folder: AnnotatedFolder, notes: FileNotes, read: Callable[[], Annotations]
) -> Annotations:
    """Return the annotations of a file; those of many images are read once.

    They are read anew when the file or the list of images changes, when its images are found
    elsewhere, and each time if there is a warning to log.

    Args:
        notes: what `read` reports besides.
        read: reads the annotations.
    """
    state = state_of_files([str(folder.annotations), str(folder.image_list)], time.time_ns())
    if state is None:  # changed a moment ago
        return read()
    parts = [None if part is None else os.path.abspath(str(part)) for part in folder[1:4]]
    name = Memory.of(KIND, *parts, folder.subset, folder.is_shared).name
    kept = read_arrays(KIND, name, version_of_readers() + state)
    if kept is not None:
        texts = parse_json(kept["texts"].tobytes())
        if _num_present(texts["paths"]) == kept["present"]:
            polygons = Polygons(kept["points"], kept["point_starts"])
            fields: dict[str, Any] = {**texts, **{field: kept[field] for field in _ARRAYS}}
            return Annotations(**fields, polygons=polygons)
    found = read()
    if len(found) >= FEWEST_IMAGES and not notes.warnings:
        text = json.dumps({field: getattr(found, field) for field in _TEXTS})
        arrays = {
            "texts": np.frombuffer(text.encode(), np.uint8),
            "present": np.array(_num_present(found.paths)),
            "points": found.polygons.points_xy,
            "point_starts": found.polygons.starts,
            **{field: getattr(found, field) for field in _ARRAYS},
        }
        write_arrays(KIND, name, version_of_readers() + state, arrays)
    return found


def _num_present(paths: Sequence[str]) -> int:
    """Return how many of some images exist: it decides in which folders they are looked for."""
    return sum(map(os.path.exists, paths[:: max(1, len(paths) // _MOST_PROBED)]))
