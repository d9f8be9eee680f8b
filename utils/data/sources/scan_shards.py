"""The images of a split scanned by all ranks, a shard each."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from utils.data.image.limits import MAX_PIXELS
from utils.data.sources.label_cache import LabelCache
from utils.data.sources.labels import (
    ImageSource,
    ScanReport,
    image_of,
    report_usable,
    require_labels,
    scan_each,
)
from utils.data.sources.scan_arrays import ScanArrays, join_scans
from utils.errors import DatasetError
from utils.processes.world import World


def scan_shared(
    images: Sequence[Path | ImageSource],
    num_classes: int,
    world: World,
    progress: Callable[[], None],
    max_pixels: int = MAX_PIXELS,
    cache: LabelCache | None = None,
) -> ScanReport:
    """Scan a shard on each rank; return, or raise, on all ranks what `labels.scan_samples` does.

    Args:
        images: the same ones on all ranks, in the same order.
        progress: called before each image, from several threads.
        max_pixels: of an image; a larger one is left out.
        cache: of the images of all ranks. One of each machine writes it, and a rank whose machine
            has none scans: nobody waits for it, and no result depends on it.

    Raises:
        DatasetError: also if the ranks have different images.
    """
    if world.process.world_size > 1:
        require_same_images(images, world)
    known = cache.read() if cache else None
    mine = scan_each(world.process.shard(images), num_classes, progress, max_pixels, known)
    if world.process.world_size > 1:
        of_ranks = zip(*(world.all_gather(array) for array in mine), strict=True)
        mine = join_scans([ScanArrays(*arrays) for arrays in of_ranks])
    if cache and world.process.local_rank == 0:
        cache.write(mine, known)
    return require_labels(images, report_usable(images, mine))


def require_same_images(images: Sequence[Path | ImageSource], world: World) -> None:
    """Raise DatasetError unless all ranks have the same images; they need not be in one folder."""
    # Names alone: each machine may have the images in a folder of its own.
    checksum = 0
    for image in images:
        name = f"{image_of(image).path.name}\0"
        checksum = zlib.crc32(name.encode("utf-8", "surrogatepass"), checksum)
    mine = np.array([[len(images), checksum]], np.int64)
    listed = np.concatenate(world.all_gather(mine))
    if (listed != listed[0]).any():
        raise DatasetError(
            f"the processes found different images, {listed[:, 0].tolist()} of them; give all "
            "machines the same files, and do not change them during the start"
        )
