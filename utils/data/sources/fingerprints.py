"""The fingerprints of a dataset's images: every rank reads a shard.

Before: `splits.py` lists the images. After: `drawn_split.py`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np

from utils.data.image.being_read import read_as
from utils.data.image.fingerprint import NO_FINGERPRINT, Fingerprint, fingerprint_of
from utils.data.image.limits import MAX_IMAGE_BYTES
from utils.data.records.reading import read_record
from utils.data.sources.labels import ImageSource, image_of
from utils.data.sources.scan_shards import require_same_images
from utils.errors import DatasetError
from utils.files.regular import read_bytes
from utils.processes import watchdog
from utils.processes.world import ALONE, World
from utils.screen.progress import Progress

WORK = "looking for near-duplicates"
MAX_PIXELS = 50_000_000  # of an image that is decoded here: 150 MB in each of the threads
_MOST_THREADS = 8


def read_fingerprints(
    images: Sequence[Path | ImageSource], world: World = ALONE
) -> list[Fingerprint]:
    """Return the fingerprint of each image, on all ranks; none of a file that cannot be read.

    Raises:
        DatasetError: the ranks have different images.
    """
    require_same_images(images, world)
    mine = world.process.shard(images)
    with watchdog.phase(WORK), Progress(len(mine), WORK, "images") as shown:

        def read(image: Path | ImageSource) -> Fingerprint:
            watchdog.progress()
            found = read_fingerprint(image_of(image))
            shown.update()
            return found

        with ThreadPoolExecutor(min(_MOST_THREADS, os.cpu_count() or 1)) as pool:
            found = np.array(list(pool.map(read, mine)), np.uint64).reshape(-1, 2)
    gathered = np.concatenate(world.all_gather(found.view(np.int64))).view(np.uint64)
    return [Fingerprint(*row) for row in gathered.tolist()]


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
