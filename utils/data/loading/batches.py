"""Which samples form a batch, and in which shape.

Before: `sources/labels.py`. After: `loader.py`, in this process or in those of `workers.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Protocol

import cv2
import numpy as np

from backend.processes import Process
from utils.boxes import xyxy_to_cxcywh
from utils.data.augment.sample import augment, draw_augmentation
from utils.data.augment.strengths import AugmentConfig
from utils.data.image.decoding import (
    LabelledImage,
    SourceImage,
    choose_reduction,
    letterbox_labelled,
    reduced_size,
)
from utils.data.image.letterbox import Letterbox, fit_long_side
from utils.data.image.resizing import resize
from utils.data.loading.batch import Batch, Targets
from utils.data.loading.image_cache import ImageCache
from utils.data.loading.reading import decode, pixel_boxes, pixel_polygons
from utils.data.loading.sample_table import SampleTable
from utils.data.randomness import epoch_order, sample_generator
from utils.data.sources.labels import Sample
from utils.errors import DatasetError

# The public recipe's margin around rectangular validation images, in strides.
RECTANGLE_MARGIN = 0.5


class BatchSource(Protocol):
    """A recipe for batches that can be sent to another process."""

    def __len__(self) -> int:
        """Return the number of batches in an epoch."""

    def indices(self, epoch: int, batch_index: int) -> np.ndarray:
        """Return the sample indices of a whole batch, over all ranks, int64."""

    def shape(self, batch_index: int) -> tuple[int, int, int, int]:
        """Return the shape (B, 3, H, W) of the images of this rank's shard; B may be 0."""

    def build(self, epoch: int, batch_index: int, images: np.ndarray) -> Batch:
        """Fill `images`, uint8 of that shape, and return the shard of the batch around it."""


@dataclass(frozen=True)
class TrainBatches:
    """A rank's shard of shuffled, augmented square batches; the last batch may be smaller."""

    samples: SampleTable
    image_size: int
    batch_size: int  # over all ranks
    augment: AugmentConfig
    seed: int
    process: Process = Process()
    cache: ImageCache | None = None  # made for `image_sizes`

    def __len__(self) -> int:
        return math.ceil(len(self.samples) / self.batch_size)

    def shape(self, batch_index: int) -> tuple[int, int, int, int]:
        num_before = batch_index * self.batch_size
        num_images = min(self.batch_size, len(self.samples) - num_before)
        return len(self.process.shard(range(num_images))), 3, self.image_size, self.image_size

    def build(self, epoch: int, batch_index: int, images: np.ndarray) -> Batch:
        global_indices = self.indices(epoch, batch_index)
        indices = self.process.shard(global_indices)
        targets = fill_images(images, indices, partial(self._item, epoch))
        return Batch(images, targets, indices, (), global_indices)

    def indices(self, epoch: int, batch_index: int) -> np.ndarray:
        order = epoch_order(self.seed, epoch, len(self.samples))
        return order[batch_index * self.batch_size :][: self.batch_size]

    def _item(self, epoch: int, index: int) -> LabelledImage:
        generator = sample_generator(self.seed, epoch, index)
        strengths = self.augment.in_epoch(epoch)
        draw = draw_augmentation(strengths, generator, index, len(self.samples))
        with naming_image(self.samples[index].image_path):
            sources = [self._source(tile) for tile in draw.samples]
            return augment(draw, sources, self.image_size)

    def image_sizes(self) -> list[tuple[int, int]]:
        """Return (height, width) of each sample as it is decoded and cached."""
        sizes = [(height, width) for height, width in self.samples.sizes.tolist()]
        return [reduced_size(size, choose_reduction(size, self.image_size)) for size in sizes]

    def _source(self, index: int) -> SourceImage:
        sample = self.samples[index]
        size = sample.height, sample.width
        reduction = choose_reduction(size, self.image_size)
        return SourceImage(
            size,
            sample.class_index,
            pixel_boxes(sample),
            reduction,
            partial(self._decode, index, sample, reduction),
            pixel_polygons(sample),
        )

    def _decode(self, index: int, sample: Sample, reduction: int) -> np.ndarray:
        with naming_image(sample.image_path):  # any tile of a mosaic may fail
            if self.cache is None or not self.cache.holds(index):
                return decode(sample, reduction)
            return self.cache.get(index, partial(decode, sample, reduction))


@dataclass(frozen=True)
class ValBatches:
    """A rank's shard of letterboxed batches in a fixed order, long sides at `image_size`.

    Rectangular batches hold images of similar aspect ratio. Their sides are the smallest multiples
    of `stride` that hold the images of all ranks and half a stride. Sides of square batches are
    the smallest multiple of `stride` from `image_size` up.
    """

    samples: SampleTable
    image_size: int
    batch_size: int  # over all ranks
    stride: int
    rectangular: bool
    process: Process = Process()
    cache: ImageCache | None = None  # made for `image_sizes`

    def __len__(self) -> int:
        return math.ceil(len(self.samples) / self.batch_size)

    def shape(self, batch_index: int) -> tuple[int, int, int, int]:
        indices = self.indices(0, batch_index)  # of all ranks: their images have one size
        sides = np.array([self.image_size, self.image_size]) / self.stride
        if self.rectangular:
            contents = [self._letterbox(index, (self.image_size,) * 2) for index in indices]
            largest = np.max([content.resized_size for content in contents], axis=0)
            sides = largest / self.stride + RECTANGLE_MARGIN
        height, width = (math.ceil(side) * self.stride for side in sides)
        return len(self.process.shard(indices)), 3, height, width

    def build(self, epoch: int, batch_index: int, images: np.ndarray) -> Batch:
        global_indices = self.indices(0, batch_index)
        indices = self.process.shard(global_indices)
        input_size = images.shape[2], images.shape[3]
        letterboxes = tuple(self._letterbox(index, input_size) for index in indices)
        targets = fill_images(images, indices, partial(self._item, input_size))
        return Batch(images, targets, indices, letterboxes, global_indices)

    def indices(self, epoch: int, batch_index: int) -> np.ndarray:
        return self._order[batch_index * self.batch_size :][: self.batch_size]

    @cached_property
    def _order(self) -> np.ndarray:
        if not self.rectangular:
            return np.arange(len(self.samples))
        height, width = self.samples.sizes.T
        return np.argsort(height / width, kind="stable")

    def _letterbox(self, index: int, input_size: tuple[int, int]) -> Letterbox:
        height, width = self.samples.sizes[index].tolist()
        return fit_long_side((height, width), self.image_size, input_size)

    def image_sizes(self) -> list[tuple[int, int]]:
        """Return (height, width) of each sample as it is resized and cached."""
        inside = self.image_size, self.image_size
        return [self._letterbox(index, inside).resized_size for index in range(len(self.samples))]

    def _item(self, input_size: tuple[int, int], index: int) -> LabelledImage:
        sample, placement = self.samples[index], self._letterbox(index, input_size)
        with naming_image(sample.image_path):
            image = self._resized(index, sample, placement.resized_size)
            item = LabelledImage(image, sample.class_index, pixel_boxes(sample))
            return letterbox_labelled(item, placement)

    def _resized(self, index: int, sample: Sample, size: tuple[int, int]) -> np.ndarray:
        if self.cache is None or not self.cache.holds(index):
            return resize(decode(sample), size)
        return self.cache.get(index, lambda: resize(decode(sample), size))


def fill_images(
    images: np.ndarray, sample_indices: np.ndarray, make_item: Callable[[int], LabelledImage]
) -> Targets:
    """Make the item of every sample index and write its image into `images`.

    Args:
        images: (B, 3, H, W) uint8, contiguous, overwritten.
        sample_indices: (B,); B may be 0.
        make_item: from a sample index to an image of size (H, W).

    Returns:
        The targets of all items together.
    """
    image_index, class_index = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    boxes = [np.zeros((0, 4), np.float32)]
    for position, sample_index in enumerate(sample_indices.tolist()):
        item = make_item(sample_index)
        for channel in range(3):  # BGR to RGB; three times as fast as assigning a transposed view
            cv2.extractChannel(item.image, 2 - channel, images[position, channel])
        image_index.append(np.full(len(item.class_index), position, np.int64))
        class_index.append(item.class_index)
        boxes.append(_normalise(item))
    return Targets(np.concatenate(image_index), np.concatenate(class_index), np.concatenate(boxes))


def _normalise(item: LabelledImage) -> np.ndarray:
    height, width = item.size
    boxes = xyxy_to_cxcywh(item.boxes_xyxy) / [width, height, width, height]
    return boxes.astype(np.float32)


class _NamedError(RuntimeError):
    """A failure that names its image."""


@contextmanager
def naming_image(image_path: Path) -> Iterator[None]:
    """Add the image's path to any failure inside that does not name an image yet."""
    try:
        yield
    except (DatasetError, _NamedError):
        raise
    except Exception as error:
        raise _NamedError(f"{image_path}: {type(error).__name__}: {error}") from error
