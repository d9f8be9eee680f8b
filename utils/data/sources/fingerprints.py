"""The fingerprints of a dataset's images: every rank reads a shard, and what it read is kept."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np

from utils.data.image.being_read import read_as
from utils.data.image.fingerprint import (
    NO_FINGERPRINT,
    UNKNOWN,
    Fingerprint,
    fingerprint_of,
)
from utils.data.image.limits import MAX_IMAGE_BYTES
from utils.data.records.reading import read_record
from utils.data.sources.label_cache import in_blocks, look_up, version
from utils.data.sources.labels import ImageSource, image_of
from utils.data.sources.scan_shards import require_same_images
from utils.errors import DatasetError
from utils.files.array_cache import read_arrays, state_of_files, write_arrays
from utils.files.regular import read_bytes
from utils.processes import watchdog
from utils.processes.world import ALONE, World
from utils.screen.progress import Progress

WORK = "looking for near-duplicates"
MAX_PIXELS = 50_000_000  # of an image that is decoded here: 150 MB in each of the threads
FEWEST_KEPT = 500  # images; fewer are read as soon as a file of them
_MOST_THREADS = 8
_KIND = "fingerprints"  # of what is kept


def read_fingerprints(
    images: Sequence[Path | ImageSource], world: World = ALONE
) -> list[Fingerprint]:
    """Return the fingerprint of each image, on all ranks; none of a file that cannot be read.

    What was read is kept in the user's cache folder: an image is read again when it was changed,
    or has no look.

    Raises:
        DatasetError: the ranks have different images.
    """
    require_same_images(images, world)
    name, mine = _name_of(images), [image_of(image) for image in world.process.shard(images)]
    known = (read_arrays(_KIND, name, version()) or {}).get("rows", np.zeros((0, 3), np.int64))
    with watchdog.phase(WORK):
        rows = np.concatenate(world.all_gather(_rows_of(mine, known)))
    is_new = len(rows) >= FEWEST_KEPT and not np.array_equal(rows, known)
    if is_new and world.process.local_rank == 0:
        write_arrays(_KIND, name, version(), {"rows": rows})
    return [Fingerprint(*row) for row in rows[:, 1:].copy().view(np.uint64).tolist()]


def _rows_of(images: Sequence[ImageSource], known: np.ndarray) -> np.ndarray:
    """Return (N, 3) int64: the keys of images and their fingerprints, read or known."""

    def state(index: int, now_ns: int) -> bytes | None:
        return _state_of(images[index], now_ns)

    with ThreadPoolExecutor(min(_MOST_THREADS, os.cpu_count() or 1)) as pool:
        keys, rows = look_up(pool, state, len(images), known[:, 0])
        missing = np.flatnonzero(rows < 0)
        with Progress(len(missing), WORK, "images") as shown:

            def read(index: int) -> Fingerprint:
                watchdog.progress()
                found = read_fingerprint(images[index])
                shown.update()
                return found

            blocks = [np.array(block, np.uint64) for block in in_blocks(pool, read, missing)]
    found = np.zeros((len(images), 2), np.int64)
    found[rows >= 0] = known[rows[rows >= 0], 1:]
    found[missing] = np.concatenate([np.zeros((0, 2), np.uint64), *blocks]).view(np.int64)
    # An unknown look may be a disk's error, which passes without a change of the file.
    return np.column_stack([keys * (found[:, 1] != UNKNOWN), found])


def _name_of(images: Sequence[Path | ImageSource]) -> str:
    """Return the name of the file of fingerprints: that of the folders where the images lie."""
    folders = {os.path.abspath(image_of(image).path.parent) for image in images}
    text = "\0".join(sorted(folders)).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=16).hexdigest()


def _state_of(image: ImageSource, now_ns: int) -> bytes | None:
    """Return what an image's fingerprint depends on; None if it may change unseen."""
    place = image.place
    state = state_of_files((str(image.path if place is None else place.path),), now_ns)
    return None if state is None else state + repr(place and place[1:]).encode()


def read_fingerprint(image: ImageSource) -> Fingerprint:
    """Return the fingerprint of an image; none if its file cannot be read."""
    return read_as(image.path, partial(_read, image))


def _read(image: ImageSource) -> Fingerprint:
    try:
        if image.place is not None:
            content = read_record(image.place)
        else:
            content = np.frombuffer(read_bytes(image.path, MAX_IMAGE_BYTES), np.uint8)
    except (OSError, DatasetError):  # the scan of the labels says so
        return NO_FINGERPRINT
    return fingerprint_of(content, MAX_PIXELS)
