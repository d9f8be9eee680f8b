"""Images with boxes and masks: those of boxes, and maps of their objects' pixels."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from utils.data.augment.sample import Augmentation
from utils.data.augment.strengths import AugmentConfig
from utils.data.image.decoding import LabelledImage
from utils.data.loading.batch import TargetMasks, Targets
from utils.data.loading.items import BoxItems
from utils.masks.raster import index_map, separate
from utils.polygons import Polygons, starts_of, without_outlines


@dataclass(frozen=True)
class MaskItems(BoxItems):
    """Images of `BoxItems`, whose targets have masks; without an outline, the mask is the box."""

    ratio: int = 4  # the maps are so many times smaller than the images
    overlap: bool = True  # one map an image, the smaller objects on top; else one an object

    def draw(
        self, strengths: AugmentConfig, generator: np.random.Generator, index: int, num_samples: int
    ) -> Augmentation:
        drawn = super().draw(strengths, generator, index, num_samples)
        return replace(drawn, fits_outlines=True)

    def targets(self, item: LabelledImage) -> Targets:
        targets = super().targets(item)
        outlines = complete_outlines(item.polygons, item.boxes_xyxy)
        num_objects = len(outlines)
        if self.overlap:
            numbers, value = index_map(outlines, item.size, self.ratio)
            masks = TargetMasks(numbers[None], np.zeros(num_objects, np.int64), value)
        else:
            maps = separate(outlines, item.size, self.ratio)
            masks = TargetMasks(maps, np.arange(num_objects), np.ones(num_objects, np.int64))
        return targets._replace(masks=masks)


def complete_outlines(polygons: Polygons | None, boxes_xyxy: np.ndarray) -> Polygons:
    """Return an outline of each object: its own, or that of its box where it has none.

    Args:
        polygons: of M objects.
        boxes_xyxy: (M, 4), in the unit of the polygons.
    """
    num_objects = len(boxes_xyxy)
    polygons = polygons or without_outlines(num_objects)
    missing = polygons.num_points == 0
    num_points = np.where(missing, 4, polygons.num_points)
    is_corner = np.repeat(missing, num_points)
    points = np.empty((len(is_corner), 2))
    points[~is_corner] = polygons.points_xy
    points[is_corner] = boxes_xyxy[missing][:, [0, 1, 2, 1, 2, 3, 0, 3]].reshape(-1, 2)
    return Polygons(points, starts_of(num_points))
