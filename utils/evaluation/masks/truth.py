"""The pixels of labelled objects, an image at a time."""

from __future__ import annotations

import numpy as np

from utils.data.loading.items import complete_outlines
from utils.data.loading.reading import ground_truth, pixel_polygons
from utils.data.sources.samples import Sample
from utils.detections import GroundTruth
from utils.masks.runs import areas, runs_of_polygons
from utils.ragged import Ragged


def masked_ground_truth(sample: Sample) -> GroundTruth:
    """Return a sample's labels in pixels of its image, with masks and their areas.

    The pixels are those that pycocotools gives the outlines; an object without one is its box.
    """
    labels = ground_truth(sample)
    outlines = complete_outlines(pixel_polygons(sample), labels.boxes_xyxy)
    size = sample.height, sample.width
    rows = [runs_of_polygons([outlines.outline(i)], size) for i in range(len(outlines))]
    masks = Ragged.of(rows, np.uint32)
    return labels._replace(area=areas(masks), masks=masks)
