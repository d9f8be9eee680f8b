"""The pixels of labelled objects, an image at a time.

Before: the samples. After: `metric.py`.
"""

from __future__ import annotations

import numpy as np

from utils.boxes import corners_of
from utils.data.loading.reading import ground_truth, pixel_polygons
from utils.data.sources.samples import Sample
from utils.detections import GroundTruth
from utils.masks.runs import area, runs_of_polygons
from utils.polygons import without_outlines
from utils.ragged import Ragged


def masked_ground_truth(sample: Sample) -> GroundTruth:
    """Return a sample's labels in pixels of its image, with masks and their areas.

    The pixels are those that pycocotools gives the outlines; an object without one is its box.
    """
    labels = ground_truth(sample)
    polygons = pixel_polygons(sample) or without_outlines(len(labels.class_index))
    outlines = [
        polygons.outline(index) if num_points else corners_of(box)
        for index, (num_points, box) in enumerate(
            zip(polygons.num_points, labels.boxes_xyxy, strict=True)
        )
    ]
    rows = [runs_of_polygons([outline], (sample.height, sample.width)) for outline in outlines]
    areas = np.array([area(row) for row in rows], np.float64)
    return labels._replace(area=areas, masks=Ragged.of(rows, np.uint32))
