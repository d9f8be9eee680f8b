"""Which samples form a batch, and in which shape.

Before: `labels.scan_samples`. After: `loader`, in this process or in those of `workers`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Protocol

import numpy as np

from utils.data.augment import AugmentConfig, augment, draw_augmentation
from utils.data.batch import Batch, fill_images, naming_image
from utils.data.images import LabelledImage, letterbox_labelled, read_image
from utils.data.labels import Sample
from utils.data.letterbox import Letterbox, fit_letterbox
from utils.data.randomness import epoch_order, sample_generator

# The public recipe's margin around rectangular validation images, in strides.
RECTANGLE_MARGIN = 0.5


class BatchSource(Protocol):
    """A recipe for batches that can be sent to another process."""

    def __len__(self) -> int:
        """The number of batches in an epoch."""

    def shape(self, batch_index: int) -> tuple[int, int, int, int]:
        """The shape (B, 3, H, W) of a batch's images."""

    def build(self, epoch: int, batch_index: int, images: np.ndarray) -> Batch:
        """Fill `images`, uint8 of that shape, and return the batch around it."""


@dataclass(frozen=True)
class TrainBatches:
    """Shuffled, augmented square batches; the last one may be smaller."""

    samples: Sequence[Sample]
    image_size: int
    batch_size: int
    augment: AugmentConfig
    seed: int

    def __len__(self) -> int:
        return math.ceil(len(self.samples) / self.batch_size)

    def shape(self, batch_index: int) -> tuple[int, int, int, int]:
        num_before = batch_index * self.batch_size
        num_images = min(self.batch_size, len(self.samples) - num_before)
        return num_images, 3, self.image_size, self.image_size

    def build(self, epoch: int, batch_index: int, images: np.ndarray) -> Batch:
        order = epoch_order(self.seed, epoch, len(self.samples))
        indices = order[batch_index * self.batch_size :][: self.batch_size]
        targets = fill_images(images, indices, partial(self._item, epoch))
        return Batch(images, targets, indices, ())

    def _item(self, epoch: int, index: int) -> LabelledImage:
        generator = sample_generator(self.seed, epoch, index)
        draw = draw_augmentation(self.augment, generator, index, len(self.samples))
        with naming_image(self.samples[index].image_path):
            tiles = [read_image(self.samples[tile]) for tile in draw.tiles]
            return augment(draw, tiles, self.image_size)


@dataclass(frozen=True)
class ValBatches:
    """Letterboxed batches in a fixed order, each image with its long side at `image_size`.

    Rectangular batches hold images of similar aspect ratio, in the smallest multiple of `stride`
    around them plus half a stride; square ones are a multiple of `stride` from `image_size` up.
    """

    samples: Sequence[Sample]
    image_size: int
    batch_size: int
    stride: int
    rectangular: bool

    def __len__(self) -> int:
        return math.ceil(len(self.samples) / self.batch_size)

    def shape(self, batch_index: int) -> tuple[int, int, int, int]:
        indices = self._indices(batch_index)
        sides = np.array([self.image_size, self.image_size]) / self.stride
        if self.rectangular:
            contents = [self._letterbox(index, (self.image_size,) * 2) for index in indices]
            largest = np.max([content.resized_size for content in contents], axis=0)
            sides = largest / self.stride + RECTANGLE_MARGIN
        height, width = (math.ceil(side) * self.stride for side in sides)
        return len(indices), 3, height, width

    def build(self, epoch: int, batch_index: int, images: np.ndarray) -> Batch:
        indices = self._indices(batch_index)
        input_size = images.shape[2], images.shape[3]
        letterboxes = tuple(self._letterbox(index, input_size) for index in indices)
        targets = fill_images(images, indices, partial(self._item, input_size))
        return Batch(images, targets, indices, letterboxes)

    @cached_property
    def _order(self) -> np.ndarray:
        if not self.rectangular:
            return np.arange(len(self.samples))
        return np.argsort([sample.height / sample.width for sample in self.samples], kind="stable")

    def _indices(self, batch_index: int) -> np.ndarray:
        return self._order[batch_index * self.batch_size :][: self.batch_size]

    def _letterbox(self, index: int, input_size: tuple[int, int]) -> Letterbox:
        size = self.samples[index].height, self.samples[index].width
        return fit_letterbox(size, input_size, max_scale=self.image_size / max(size))

    def _item(self, input_size: tuple[int, int], index: int) -> LabelledImage:
        with naming_image(self.samples[index].image_path):
            item = read_image(self.samples[index])
            return letterbox_labelled(item, self._letterbox(index, input_size))
