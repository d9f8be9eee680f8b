"""An image with its labels, decoded or still to be."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from utils.data.image.letterbox import Letterbox, letterbox, reduced_size
from utils.polygons import Polygons, join_polygons


class Objects(NamedTuple):
    """Objects in pixels of an image or of a canvas."""

    class_index: np.ndarray  # (M,) int64
    boxes_xyxy: np.ndarray  # (M, 4) float64
    polygons: Polygons | None  # float64, of the M objects; None when all are boxes

    def select(self, rows: np.ndarray) -> Objects:
        """Return some of the objects, by index or by a (M,) bool."""
        polygons = None if self.polygons is None else self.polygons.select(rows)
        return Objects(self.class_index[rows], self.boxes_xyxy[rows], polygons)


def join_objects(first: Objects, second: Objects) -> Objects:
    """Return the objects of both, those of the first before those of the second."""
    parts = [(part.polygons, len(part.class_index)) for part in (first, second)]
    return Objects(
        np.concatenate((first.class_index, second.class_index)),
        np.concatenate((first.boxes_xyxy, second.boxes_xyxy)),
        join_polygons(parts),
    )


class LabelledImage(NamedTuple):
    """An image and its boxes, both in the image's own pixels."""

    image: np.ndarray  # (H, W, 3) uint8, BGR
    class_index: np.ndarray  # (M,) int64
    boxes_xyxy: np.ndarray  # (M, 4) float64
    polygons: Polygons | None = None  # float64, of the M objects, if any has one

    @property
    def size(self) -> tuple[int, int]:
        """(height, width)."""
        return self.image.shape[0], self.image.shape[1]

    @property
    def objects(self) -> Objects:
        """All that is labelled on it."""
        return Objects(self.class_index, self.boxes_xyxy, self.polygons)


class SourceImage(NamedTuple):
    """An image that is decoded when it is asked for, with its boxes in its own pixels."""

    size: tuple[int, int]  # (height, width) of the file
    class_index: np.ndarray  # (M,) int64
    boxes_xyxy: np.ndarray  # (M, 4) float64, in pixels of the file
    polygons: Polygons | None  # float64, in pixels of the file, of the M objects, if any has one
    reduction: int  # 1, 2, 4 or 8: the decoded image is so many times smaller
    decode: Callable[[], np.ndarray]  # returns (H, W, 3) uint8, of decoded_size

    @property
    def decoded_size(self) -> tuple[int, int]:
        """(height, width) of the decoded image."""
        return reduced_size(self.size, self.reduction)


def letterbox_labelled(item: LabelledImage, placement: Letterbox) -> LabelledImage:
    """Letterbox an image and move its boxes and polygons with it."""
    image, polygons = letterbox(item.image, placement), item.polygons
    if polygons is not None:
        polygons = polygons.moved(placement.scale[::-1], placement.padding[::-1])
    return LabelledImage(image, item.class_index, placement.to_input(item.boxes_xyxy), polygons)
