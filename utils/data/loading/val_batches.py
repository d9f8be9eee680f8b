"""Which samples form a batch of a validation, and in which shape."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from backend.processes import Process
from utils.data.image.decoding import LabelledImage
from utils.data.image.letterbox import Letterbox
from utils.data.loading.batch import Batch
from utils.data.loading.batches import fill_images, naming_image
from utils.data.loading.image_cache import ImageCache
from utils.data.loading.items import BOXES, Items
from utils.data.loading.order import Epoch, aspect_order
from utils.data.loading.reading import decode, pixel_boxes, pixel_polygons
from utils.data.loading.recipe import rectangle
from utils.data.sources.samples import Sample, SampleTable

# The public recipe's margin around rectangular validation images, in strides.
RECTANGLE_MARGIN = 0.5


@dataclass(frozen=True)
class ValBatches:
    """A rank's shard of letterboxed batches in a fixed order, long sides at `image_size`.

    Rectangular batches hold images of similar aspect ratio. Their sides are the smallest multiples
    of `stride` that hold the images of all ranks and half a stride. Sides of square batches are
    the smallest multiple of `stride` from `image_size` up. In batches of a fixed size, and in the
    order of square ones, each image is as large as fits.
    """

    samples: SampleTable
    image_size: int
    batch_size: int  # over all ranks
    stride: int
    rectangular: bool
    process: Process = Process()
    cache: ImageCache | None = None  # made for `image_sizes`
    fixed_size: tuple[int, int] | None = None  # (height, width)
    items: Items = BOXES

    def __len__(self) -> int:
        return math.ceil(len(self.samples) / self.batch_size)

    def shape(self, batch_index: int) -> tuple[int, int, int, int]:
        indices = self._indices(batch_index)  # of all ranks: their images have one size
        height = width = math.ceil(self.image_size / self.stride) * self.stride
        if self.rectangular:
            sizes = [(height, width) for height, width in self.samples.sizes[indices].tolist()]
            height, width = rectangle(sizes, self.image_size, self.stride, RECTANGLE_MARGIN)
        height, width = self.fixed_size or (height, width)
        return len(self.process.shard(indices)), 3, height, width

    def build(self, epoch: Epoch, batch_index: int, images: np.ndarray) -> Batch:
        global_indices = self._indices(batch_index)
        indices = self.process.shard(global_indices)
        input_size = images.shape[2], images.shape[3]
        letterboxes = tuple(self._letterbox(index, input_size) for index in indices)
        targets = fill_images(images, indices, partial(self._item, input_size), self.items)
        return Batch(images, targets, indices, letterboxes, global_indices)

    def indices(self, epoch: Epoch, batch_index: int) -> np.ndarray:
        return self._indices(batch_index)

    def _indices(self, batch_index: int) -> np.ndarray:
        return self._order[batch_index * self.batch_size :][: self.batch_size]

    @cached_property
    def _order(self) -> np.ndarray:
        return aspect_order(self.samples) if self.rectangular else np.arange(len(self.samples))

    def _letterbox(self, index: int, input_size: tuple[int, int]) -> Letterbox:
        height, width = self.samples.sizes[index].tolist()
        is_fixed = self.fixed_size is not None
        return self.items.place((height, width), self.image_size, input_size, is_fixed)

    def image_sizes(self) -> list[tuple[int, int]]:
        """Return (height, width) of each sample as it is resized and cached."""
        inside = self.image_size, self.image_size
        return [self._letterbox(index, inside).resized_size for index in range(len(self.samples))]

    def _item(self, input_size: tuple[int, int], index: int) -> LabelledImage:
        sample, placement = self.samples[index], self._letterbox(index, input_size)
        with naming_image(sample.image_path):
            image = self._resized(index, sample, placement)
            labels = sample.class_index, pixel_boxes(sample), pixel_polygons(sample)
            return self.items.fit(LabelledImage(image, *labels), placement)

    def _resized(self, index: int, sample: Sample, placement: Letterbox) -> np.ndarray:
        def make() -> np.ndarray:
            return self.items.resize(decode(sample), placement)

        if self.cache is None or not self.cache.holds(index):
            return make()
        return self.cache.get(index, make)
