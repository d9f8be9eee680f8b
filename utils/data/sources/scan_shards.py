"""The images of a split scanned by all ranks, a shard each.

Before: `image_files.py`. After: `labels.py::report_usable`, with the results of all ranks.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from utils.data.image.limits import MAX_PIXELS
from utils.data.sources.labels import (
    ImageSource,
    Sample,
    ScanReport,
    ScanResult,
    image_of,
    report_usable,
    require_labels,
    scan_each,
    scan_samples,
)
from utils.errors import DatasetError
from utils.polygons import Polygons, join_polygons, starts_of, without_outlines
from utils.processes.world import World


class _ScanArrays(NamedTuple):
    """The results of N images as arrays, without what the list of images says already."""

    sizes: np.ndarray  # (N, 2) int64, height and width; 0 of an image that is left out
    num_objects: np.ndarray  # (N,) int64
    class_index: np.ndarray  # (T,) int64
    boxes_cxcywh_norm: np.ndarray  # (T, 4) float32
    num_points: np.ndarray  # (T,) int64, of each polygon; 0 of an object that has only a box
    points_norm: np.ndarray  # (P, 2) float32
    problems: np.ndarray  # uint8, a JSON list of N texts


def scan_shared(
    images: Sequence[Path | ImageSource],
    num_classes: int,
    world: World,
    progress: Callable[[], None],
    max_pixels: int = MAX_PIXELS,
) -> ScanReport:
    """Scan a shard on each rank; return, or raise, on all ranks what `labels.scan_samples` does.

    Args:
        images: the same ones on all ranks, in the same order.
        progress: called before each image, from several threads.
        max_pixels: of an image; a larger one is left out.

    Raises:
        DatasetError: also where the ranks have different images.
    """
    if world.process.world_size == 1:
        return scan_samples(images, num_classes, progress, max_pixels)
    require_same_images(images, world)
    mine = scan_each(world.process.shard(images), num_classes, progress, max_pixels)
    arrays = _to_arrays(mine)
    of_ranks = zip(*(world.all_gather(array) for array in arrays), strict=True)
    results = []
    for rank, found in enumerate(of_ranks):
        part = world.process._replace(rank=rank).shard(images)
        results += _from_arrays(part, _ScanArrays(*found))
    return require_labels(report_usable(images, results))


def require_same_images(images: Sequence[Path | ImageSource], world: World) -> None:
    """Raise DatasetError unless all ranks have the same images; they need not be in one folder."""
    # Names alone: each machine may have the images in a folder of its own.
    names = b"\0".join(os.fsencode(image_of(image).path.name) for image in images)
    mine = np.array([[len(images), zlib.crc32(names)]], np.int64)
    listed = np.concatenate(world.all_gather(mine))
    if (listed != listed[0]).any():
        raise DatasetError(
            f"the processes found different images, {listed[:, 0].tolist()} of them; give all "
            "machines the same files, and do not change them during the start"
        )


def _to_arrays(results: Sequence[ScanResult]) -> _ScanArrays:
    samples = [sample for sample, _ in results]
    usable = [sample for sample in samples if sample]
    sizes = [(sample.height, sample.width) if sample else (0, 0) for sample in samples]
    counts = [len(sample.class_index) if sample else 0 for sample in samples]
    problems = json.dumps([problem for _, problem in results]).encode()
    parts = [(sample.polygons_norm, len(sample.class_index)) for sample in usable]
    polygons = join_polygons(parts) or without_outlines(sum(counts))
    return _ScanArrays(
        np.array(sizes, np.int64).reshape(-1, 2),
        np.array(counts, np.int64),
        np.concatenate([np.zeros(0, np.int64), *(sample.class_index for sample in usable)]),
        np.concatenate(
            [np.zeros((0, 4), np.float32), *(sample.boxes_cxcywh_norm for sample in usable)]
        ),
        polygons.num_points,
        polygons.points_xy,
        np.frombuffer(problems, np.uint8),
    )


def _from_arrays(images: Sequence[Path | ImageSource], arrays: _ScanArrays) -> list[ScanResult]:
    ends = np.cumsum(arrays.num_objects)
    polygons = Polygons(arrays.points_norm, starts_of(arrays.num_points))
    results: list[ScanResult] = []
    for source, (height, width), count, end, problem in zip(
        images,
        arrays.sizes.tolist(),
        arrays.num_objects.tolist(),
        ends.tolist(),
        json.loads(arrays.problems.tobytes()),
        strict=True,
    ):
        image, rows = image_of(source), slice(end - count, end)
        sample = None
        if height:
            labels = arrays.class_index[rows], arrays.boxes_cxcywh_norm[rows]
            outlines = polygons.range(end - count, end)
            sample = Sample(image.path, height, width, *labels, image.place, outlines)
        results.append((sample, problem))
    return results
