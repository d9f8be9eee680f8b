"""What a scan found in many images, in a few arrays: to be sent, kept in a cache, and joined."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from utils.data.sources.label_file import Labels
from utils.files.texts import Texts, rows_of
from utils.polygons import Polygons, join_polygons, starts_of, without_outlines


class Scanned(NamedTuple):
    """What was found of one image."""

    size: tuple[int, int]  # (height, width) in pixels
    labels: Labels | None  # None: the image is left out
    problem: str  # or ""


class ScanArrays(NamedTuple):
    """The results of N images with T objects, without what the list of images says already."""

    keys: np.ndarray  # (N,) int64; 0 where another scan must look again
    sizes: np.ndarray  # (N, 2) int64, height and width; 0 of an image that is left out
    num_objects: np.ndarray  # (N,) int64
    class_index: np.ndarray  # (T,) int64
    boxes_cxcywh_norm: np.ndarray  # (T, 4) float32
    num_points: np.ndarray  # (T,) int64, of each polygon
    points_norm: np.ndarray  # (P, 2) float32
    problem_bytes: np.ndarray  # (N,) int64, of each image's text; mostly 0
    problems: np.ndarray  # uint8, the texts

    @property
    def polygons(self) -> Polygons:
        """The polygons of the T objects."""
        return Polygons(self.points_norm, starts_of(self.num_points))

    @property
    def problem_texts(self) -> Texts:
        """The problem of each image, mostly ""."""
        return Texts(self.problems, starts_of(self.problem_bytes))

    def select(self, images: np.ndarray) -> ScanArrays:
        """Return the results of some images by their indices, in any order."""
        rows = rows_of(starts_of(self.num_objects), images)
        problems = self.problem_texts.select(images)
        polygons = self.polygons.select(rows)
        return ScanArrays(
            self.keys[images],
            self.sizes[images],
            self.num_objects[images],
            self.class_index[rows],
            self.boxes_cxcywh_norm[rows],
            polygons.num_points,
            polygons.points_xy,
            problems.lengths,
            problems.content,
        )


def arrays_of(results: Sequence[Scanned]) -> ScanArrays:
    """Return the results of images as arrays."""
    sizes = [(0, 0) if result.labels is None else result.size for result in results]
    usable = [result.labels for result in results if result.labels is not None]
    counts = [0 if found.labels is None else len(found.labels.class_index) for found in results]
    parts = [(labels.polygons_norm, len(labels.class_index)) for labels in usable]
    polygons = join_polygons(parts) or without_outlines(sum(counts))
    problems = Texts.of(result.problem for result in results)
    return ScanArrays(
        np.zeros(len(results), np.int64),
        np.array(sizes, np.int64).reshape(-1, 2),
        np.array(counts, np.int64),
        np.concatenate([np.zeros(0, np.int64), *(one.class_index for one in usable)]),
        np.concatenate([np.zeros((0, 4), np.float32), *(one.boxes_cxcywh_norm for one in usable)]),
        polygons.num_points,
        polygons.points_xy,
        problems.lengths,
        problems.content,
    )


def join_scans(parts: Sequence[ScanArrays]) -> ScanArrays:
    """Join the results of several lists of images, at least one, in order."""
    return ScanArrays(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))
