"""What a format's reader found, cached between runs until one of its files changes.

Before: `table.py`. After: `annotations.py`.

COCO's 118,000 images are described in half a gigabyte of JSON, and each run asks for them twice:
for the names of their classes, then for the objects.
"""

from __future__ import annotations

import errno
import hashlib
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from utils.data.sources.formats.annotations import Annotations
from utils.data.sources.formats.format import AnnotatedFolder, Format
from utils.files.array_cache import Arrays, read_arrays, version_of, write_arrays
from utils.files.file_state import state_of_files
from utils.files.texts import Texts
from utils.polygons import Polygons

KIND = "annotations"
FEWEST_IMAGES = 500  # fewer are read as soon as a cache is
_READERS = "utils/data/sources/formats/*.py", "utils/files/*.py", "utils/polygons.py"
_SYSTEMS = tuple(f": {os.strerror(code)}" for code in errno.errorcode if code != errno.ENOENT)
_MOST_NUMBERS = 1 << 31  # class names, or objects that are left out


def read_kept(folder: AnnotatedFolder, reader: Format) -> Annotations:
    """Return what the reader finds in a folder, from the cache if nothing has changed."""
    state = _state(folder, reader)
    if state is None:
        return reader.read(folder)
    name = hashlib.blake2b(repr(_absolute(folder)).encode("utf-8", "replace"), digest_size=16)
    kept = read_arrays(KIND, name.hexdigest(), version_of(*_READERS) + state)
    if kept is not None and (annotations := _annotations_of(kept)):
        return annotations
    annotations = reader.read(folder)
    if len(annotations) >= FEWEST_IMAGES and not _may_pass(annotations.broken.values()):
        arrays = _arrays_of(annotations)
        write_arrays(KIND, name.hexdigest(), version_of(*_READERS) + state, arrays)
    return annotations


def _may_pass(reasons: Iterable[str]) -> bool:
    """Return whether a reason is an error of the system, as of a disk, which may pass."""
    return any(reason.endswith(_SYSTEMS) for reason in reasons)


def _absolute(folder: AnnotatedFolder) -> list[str]:
    return [os.path.abspath(part) if isinstance(part, Path) else str(part) for part in folder]


def _state(folder: AnnotatedFolder, reader: Format) -> bytes | None:
    """Return a hash of all that a reader sees; None if a later change may not show.

    That is size and times of the annotations, and the names of the images: which of them are there
    decides what a name in the annotations stands for.
    """
    now_ns = time.time_ns()
    digest = hashlib.blake2b(repr(folder).encode("utf-8", "replace"), digest_size=32)
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


def _arrays_of(annotations: Annotations) -> Arrays:
    texts = {
        "class_names": annotations.class_names,
        "paths": annotations.paths,
        "broken": tuple(annotations.broken.values()),
        "left_out": tuple(annotations.left_out),
    }
    found = {name: Texts.of(of_name) for name, of_name in texts.items()}
    return {
        **{f"{name}/content": of_name.content for name, of_name in found.items()},
        **{f"{name}/starts": of_name.starts for name, of_name in found.items()},
        "broken/images": np.array(list(annotations.broken), np.int64),
        "left_out/counts": np.array(list(annotations.left_out.values()), np.int64),
        "sizes": annotations.sizes,
        "starts": annotations.starts,
        "class_index": annotations.class_index,
        "boxes_xyxy": annotations.boxes_xyxy,
        "polygons/points_xy": annotations.polygons.points_xy,
        "polygons/starts": annotations.polygons.starts,
    }


def _annotations_of(arrays: Arrays) -> Annotations | None:
    """Return the annotations of arrays; None if they are not those of `_arrays_of`."""
    try:
        class_names, paths, broken, left_out = (
            _texts(arrays, name) for name in ("class_names", "paths", "broken", "left_out")
        )
        images, counts = arrays["broken/images"], arrays["left_out/counts"]
        annotations = Annotations(
            class_names,
            paths,
            arrays["sizes"],
            arrays["starts"],
            arrays["class_index"],
            arrays["boxes_xyxy"],
            Polygons(arrays["polygons/points_xy"], arrays["polygons/starts"]),
            dict(zip(images.tolist(), broken, strict=True)),
            dict(zip(left_out, counts.tolist(), strict=True)),
        )
        return annotations if _is_sound(annotations, images, counts) else None
    except (KeyError, ValueError, TypeError):  # absent, of unequal lengths, of other dimensions
        return None


def _texts(arrays: Arrays, name: str) -> tuple[str, ...]:
    """Return texts; ValueError if they are none."""
    content, starts = arrays[f"{name}/content"], arrays[f"{name}/starts"]
    if content.dtype != np.uint8 or content.ndim != 1 or not _are_starts(starts, len(content)):
        raise ValueError(name)
    return tuple(Texts(content, starts))


def _is_sound(annotations: Annotations, images: np.ndarray, counts: np.ndarray) -> bool:
    num_images, num_objects = len(annotations.paths), len(annotations.class_index)
    forms = (
        (annotations.sizes, np.int64, (num_images, 2)),
        (annotations.class_index, np.int64, (num_objects,)),
        (annotations.boxes_xyxy, np.float64, (num_objects, 4)),
        (annotations.polygons.points_xy, np.float64, (len(annotations.polygons.points_xy), 2)),
        (images, np.int64, (len(images),)),
        (counts, np.int64, (len(counts),)),
    )
    return (
        all(array.dtype == dtype and array.shape == shape for array, dtype, shape in forms)
        and len(annotations.starts) == num_images + 1
        and _are_starts(annotations.starts, num_objects)
        and len(annotations.polygons.starts) == num_objects + 1
        and _are_starts(annotations.polygons.starts, len(annotations.polygons.points_xy))
        and _is_within(annotations.class_index, len(annotations.class_names))
        and _is_within(images, num_images)
        and _is_within(counts, _MOST_NUMBERS)
        and _is_within(annotations.sizes, _MOST_NUMBERS)
    )


def _are_starts(starts: np.ndarray, total: int) -> bool:
    """Return whether they rise from 0 to the number of things that they divide."""
    return (
        starts.dtype == np.int64
        and starts.ndim == 1
        and len(starts) > 0
        and starts[0] == 0
        and starts[-1] == total
        and bool((starts[:-1] <= starts[1:]).all())
    )


def _is_within(values: np.ndarray, end: int) -> bool:
    return bool(((values >= 0) & (values < end)).all())
