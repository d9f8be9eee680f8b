"""COCO's segmentations as its metric takes them: each piece by itself, masks as their runs.

Before: `coco_file.py`. After: `sources/coco_annotations.py`. Training has one outline per object
(`coco_masks.py`); where pieces of an object overlap, that is another area.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from utils.boxes import corners_of
from utils.data.sources.formats.coco_masks import MaskRuns, read_pieces, read_runs
from utils.masks.runs import runs_of_polygons
from utils.polygons import Polygons, starts_of


@dataclass(frozen=True, eq=False)
class Segments:
    """The segmentations of T objects: pieces, or runs, or neither."""

    pieces: Polygons  # of all objects, float64 pixels
    starts: np.ndarray  # (T + 1,) int64: object i has the pieces starts[i] up to starts[i + 1]
    runs: np.ndarray  # (N,) uint32 of all objects; one of pieces has none
    run_starts: np.ndarray  # (T + 1,) int64: object i has those from run_starts[i] on
    sizes: np.ndarray  # (T, 2) int64: height and width of the runs; 0 where there are none

    def count(self, rows: np.ndarray) -> int:
        """Return how many of some objects, given by their indices, have a segmentation."""
        has_one = (self.starts[rows + 1] > self.starts[rows]) | (self.sizes[rows, 0] > 0)
        return int(np.count_nonzero(has_one))

    def pieces_of(self, rows: np.ndarray) -> Polygons:
        """Return the pieces of some objects, given by their indices, one behind the other."""
        pieces = [np.arange(self.starts[row], self.starts[row + 1]) for row in rows.tolist()]
        return self.pieces.select(np.concatenate([np.zeros(0, np.int64), *pieces]))

    def runs_of(self, row: int, box_xyxy: np.ndarray, size: tuple[int, int]) -> np.ndarray:
        """Return the runs (N,) uint32 of an object over an image of (height, width).

        box_xyxy: (4,) of the object, which counts where it has no segmentation.
        """
        if self.sizes[row, 0]:
            return self.runs[self.run_starts[row] : self.run_starts[row + 1]]
        pieces = [self.pieces.outline(i) for i in range(self.starts[row], self.starts[row + 1])]
        if not pieces:
            pieces = [corners_of(box_xyxy)]
        return runs_of_polygons(pieces, size)


@dataclass
class SegmentTable:
    """Segmentations one after the other, which grow without an object of Python for each."""

    points: array[float] = field(default_factory=lambda: array("d"))
    num_points: array[int] = field(default_factory=lambda: array("q"))
    num_pieces: array[int] = field(default_factory=lambda: array("q"))
    runs: array[int] = field(default_factory=lambda: array("I"))
    num_runs: array[int] = field(default_factory=lambda: array("q"))
    sizes: array[int] = field(default_factory=lambda: array("q"))

    def add(self, segmentation: Any) -> None:
        """Add that of the next object; raise ValueError or TypeError for one that is none.

        Then it has none, and the points of the next object follow.
        """
        pieces: list[array[float]] = []
        mask = MaskRuns(np.zeros(0, np.int64), (0, 0))
        try:
            if isinstance(segmentation, dict):
                mask = read_runs(segmentation)
            elif segmentation:
                pieces = read_pieces(segmentation)
        finally:
            for piece in pieces:
                self.points.extend(piece)
                self.num_points.append(len(piece) // 2)
            self.num_pieces.append(len(pieces))
            self.runs.frombytes(mask.lengths.astype(np.uint32).tobytes())
            self.num_runs.append(len(mask.lengths))
            self.sizes.extend(mask.size)

    def joined(self) -> Segments:
        """Return all of them."""
        points = np.frombuffer(self.points, np.float64).reshape(-1, 2)
        return Segments(
            Polygons(points, starts_of(np.frombuffer(self.num_points, np.int64))),
            starts_of(np.frombuffer(self.num_pieces, np.int64)),
            np.frombuffer(self.runs, np.uint32),
            starts_of(np.frombuffer(self.num_runs, np.int64)),
            np.frombuffer(self.sizes, np.int64).reshape(-1, 2),
        )
