"""The samples of a split in a few arrays, to be sent to other processes.

Before: `sources/labels.py`. After: `batches.py`.

A hundred thousand samples with two small arrays each take seconds and much memory to send to
every worker; a few large arrays do not. With polygons a sample takes 8 bytes an object and 8 bytes
a point more, 2.5 kB in COCO.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from utils.data.sources.labels import Sample
from utils.polygons import join_polygons


class SampleTable:
    """Samples by index; each is made when it is asked for, and its arrays are views.

    Attributes:
        sizes: (S, 2) int32, height and width of each image.
        class_index: (T,) int64, of the objects of all images, one after the other.
    """

    def __init__(self, samples: Sequence[Sample]):
        self._paths = [str(sample.image_path) for sample in samples]
        self._records = [sample.record for sample in samples]
        self.sizes = np.array([(sample.height, sample.width) for sample in samples], np.int32)
        counts = [len(sample.class_index) for sample in samples]
        self._starts = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
        self.class_index = np.concatenate([sample.class_index for sample in samples])
        self._boxes = np.concatenate([sample.boxes_cxcywh_norm for sample in samples])
        parts = [(sample.polygons_norm, len(sample.class_index)) for sample in samples]
        self._polygons = join_polygons(parts)

    def __len__(self) -> int:
        return len(self._paths)

    @property
    def image_of_object(self) -> np.ndarray:
        """(T,) int64, for each object the index of its image."""
        return np.repeat(np.arange(len(self)), np.diff(self._starts))

    def __getitem__(self, index: int) -> Sample:
        first, end = self._starts[index : index + 2].tolist()
        rows = slice(first, end)
        height, width = self.sizes[index].tolist()
        return Sample(
            Path(self._paths[index]),
            height,
            width,
            self.class_index[rows],
            self._boxes[rows],
            self._records[index],
            self._polygons.range(first, end) if self._polygons is not None else None,
        )
