"""Which samples form a batch, in which shape, and how it is built."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from duet.utils.data.image.decoding import LabelledImage, SourceImage
from duet.utils.data.image.letterbox import Letterbox, reduced_size
from duet.utils.data.loading.batch import Batch, Targets, join_targets
from duet.utils.data.loading.image_cache import ImageCache
from duet.utils.data.loading.items import BOXES, BoxItems
from duet.utils.data.loading.order import (
    SQUARE,
    BatchRecipe,
    Epoch,
    aspect_order,
    draws_of,
    rectangle,
)
from duet.utils.data.loading.quads import QUAD, draw_enlarged, join_quads
from duet.utils.data.loading.reading import decode, objects_of
from duet.utils.data.randomness import sample_generator
from duet.utils.data.sources.samples import Sample, SampleTable
from duet.utils.errors import DatasetError, UserError
from duet.utils.strengths import AugmentConfig

# A rank's contiguous part of a sequence: that of the images of a batch, for its shard.
Shard = Callable[[Any], Any]


def all_of(items: Any) -> Any:
    """Return the shard of the only rank."""
    return items


# The public recipe's margin around rectangular validation images, in strides.
RECTANGLE_MARGIN = 0.5


@dataclass(frozen=True)
class TrainRecipe:
    """How samples become the batches of a training, on all ranks alike."""

    image_size: int  # side of square images, pixels
    batch_size: int  # samples over all ranks; the last batch of an epoch may be smaller
    augment: AugmentConfig = AugmentConfig()
    seed: int = 0  # from 0 up
    order: BatchRecipe = SQUARE
    items: BoxItems = BOXES  # for the task


@dataclass(frozen=True)
class TrainBatches:
    """A rank's shard of augmented batches; the last batch may be smaller.

    They are square, or with a rectangular order of the smallest shape, in multiples of `stride`,
    that holds the images of all ranks. With quads each image is made of four: up to three
    images at the end of an epoch, other ones each time, are left out.
    """

    samples: SampleTable
    recipe: TrainRecipe
    shard: Shard = all_of
    stride: int = 32
    cache: ImageCache | None = None  # made for `image_sizes`
    num_recent: int = 0  # images that are kept decoded, those that were used last

    def __len__(self) -> int:
        """Return the number of batches in an epoch."""
        return math.ceil(self.num_images / self.recipe.batch_size)

    @property
    def num_images(self) -> int:
        """How many samples an epoch shows, repeated ones each time."""
        return self.recipe.order.length(self.samples) // self._group * self._group

    @property
    def _group(self) -> int:
        """Samples that become one image."""
        return QUAD if self.recipe.order.quad else 1

    def shape(self, batch_index: int) -> tuple[int, int, int, int]:
        """Return the shape (B, 3, H, W) of the images of this rank's shard; B may be 0."""
        num_before = batch_index * self.recipe.batch_size
        num_images = min(self.recipe.batch_size, self.num_images - num_before) // self._group
        side = 2 if self.recipe.order.quad else 1
        height, width = (side * x for x in self._image_shape(batch_index))
        return len(self.shard(range(num_images))), 3, height, width

    def _image_shape(self, batch_index: int) -> tuple[int, int]:
        """Return (height, width) of one sample."""
        if not self.recipe.order.rectangular:
            return self.recipe.image_size, self.recipe.image_size
        indices = self.indices(Epoch(0), batch_index)  # the same in all epochs
        sizes = [(height, width) for height, width in self.samples.sizes[indices].tolist()]
        return rectangle(sizes, self.recipe.image_size, self.stride)

    def build(self, epoch: Epoch, batch_index: int, images: np.ndarray) -> Batch:
        """Fill `images`, uint8 of `shape`, and return the shard of the batch around it."""
        draws = self._draws(epoch)
        positions = self._positions(batch_index)
        mine = self.shard(positions.reshape(-1, self._group))
        make_item = partial(self._item, epoch.number, draws, self._image_shape(batch_index))
        if self.recipe.order.quad:
            _, channels, height, width = images.shape
            singles = np.empty((mine.size, channels, height // 2, width // 2), np.uint8)
            targets = fill_images(singles, mine.reshape(-1), make_item, self.recipe.items)
            enlarged = draw_enlarged(self.recipe.seed, epoch.number, draws[mine[:, 0]])
            targets = join_quads(singles, targets, enlarged, images)
        else:
            targets = fill_images(images, mine.reshape(-1), make_item, self.recipe.items)
        indices, global_indices = (
            draws[places.reshape(-1)] % len(self.samples) for places in (mine, positions)
        )
        return Batch(images, targets, indices, (), global_indices)

    def indices(self, epoch: Epoch, batch_index: int) -> np.ndarray:
        """Return the sample indices of a whole batch, over all ranks, int64."""
        return self._draws(epoch)[self._positions(batch_index)] % len(self.samples)

    def _draws(self, epoch: Epoch) -> np.ndarray:
        """Return the numbers of `draws_of` of an epoch, over all ranks, (num_images,) int64."""
        return draws_of(self.recipe.order, self.recipe.seed, self.samples, epoch)[: self.num_images]

    def _positions(self, batch_index: int) -> np.ndarray:
        """Return where in the epoch's order a whole batch lies, over all ranks, (N,) int64."""
        start = batch_index * self.recipe.batch_size
        return np.arange(start, min(start + self.recipe.batch_size, self.num_images))

    def _item(
        self, epoch: int, draws: np.ndarray, size: tuple[int, int], position: int
    ) -> LabelledImage:
        """Make the image at a position of an epoch's order, (height, width) in size."""
        draw_number = int(draws[position])
        index, num_samples = draw_number % len(self.samples), len(self.samples)
        generator = sample_generator(self.recipe.seed, epoch, draw_number)
        strengths = self.recipe.augment.in_epoch(epoch)
        window = min(self.recipe.order.mosaic_window, len(draws))
        if window:
            drawn = self.recipe.items.draw(strengths, generator, 0, window)
            # The first places see all others of the first window, behind them too.
            places = [
                position - back + (window if back > position else 0) for back in drawn.samples
            ]
            tiles = [int(draws[place]) % num_samples for place in places]
        else:
            drawn = self.recipe.items.draw(strengths, generator, index, num_samples)
            tiles = list(drawn.samples)
        with _naming_image(self.samples[index].image_path):
            sources = [self._source(tile) for tile in tiles]
            return self.recipe.items.make(drawn, sources, self.recipe.image_size, size)

    def image_sizes(self) -> list[tuple[int, int]]:
        """Return (height, width) of each sample as it is decoded and cached."""
        sizes = [(height, width) for height, width in self.samples.sizes.tolist()]
        return [
            reduced_size(size, self.recipe.items.reduction(size, self.recipe.image_size))
            for size in sizes
        ]

    def _source(self, index: int) -> SourceImage:
        sample = self.samples[index]
        size = sample.height, sample.width
        reduction = self.recipe.items.reduction(size, self.recipe.image_size)
        read = partial(self._decode, index, sample, reduction)
        return SourceImage(size, *objects_of(sample), reduction, read)

    def _decode(self, index: int, sample: Sample, reduction: int) -> np.ndarray:
        image = self._recent.pop(index, None)
        if image is None:
            image = _cached(self.cache, index, partial(decode, sample, reduction))
        if self.num_recent:
            self._recent[index] = image
            if len(self._recent) > self.num_recent:
                del self._recent[next(iter(self._recent))]
        return image

    @cached_property
    def _recent(self) -> dict[int, np.ndarray]:
        """Decoded images by sample index, the one that was used last at the end."""
        return {}


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
    shard: Shard = all_of
    cache: ImageCache | None = None  # made for `image_sizes`
    fixed_size: tuple[int, int] | None = None  # (height, width)
    items: BoxItems = BOXES

    def __len__(self) -> int:
        """Return the number of batches."""
        return math.ceil(len(self.samples) / self.batch_size)

    def shape(self, batch_index: int) -> tuple[int, int, int, int]:
        """Return the shape (B, 3, H, W) of the images of this rank's shard; B may be 0."""
        indices = self._indices(batch_index)  # all ranks: their images have one size
        height = width = math.ceil(self.image_size / self.stride) * self.stride
        if self.rectangular:
            sizes = [(height, width) for height, width in self.samples.sizes[indices].tolist()]
            height, width = rectangle(sizes, self.image_size, self.stride, RECTANGLE_MARGIN)
        height, width = self.fixed_size or (height, width)
        return len(self.shard(indices)), 3, height, width

    def build(self, epoch: Epoch, batch_index: int, images: np.ndarray) -> Batch:
        """Fill `images`, uint8 of `shape`, and return the shard of the batch around it."""
        global_indices = self._indices(batch_index)
        indices = self.shard(global_indices)
        input_size = images.shape[2], images.shape[3]
        letterboxes = tuple(self._letterbox(index, input_size) for index in indices)
        targets = fill_images(images, indices, partial(self._item, input_size), self.items)
        return Batch(images, targets, indices, letterboxes, global_indices)

    def indices(self, epoch: Epoch, batch_index: int) -> np.ndarray:
        """Return the sample indices of a whole batch, over all ranks, int64."""
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
        with _naming_image(sample.image_path):
            image = _cached(self.cache, index, lambda: self.items.resize(decode(sample), placement))
            return self.items.fit(LabelledImage(image, *objects_of(sample)), placement)


def _cached(cache: ImageCache | None, index: int, make: Callable[[], np.ndarray]) -> np.ndarray:
    """Return the image of a sample from a cache that holds it, else make it."""
    return make() if cache is None or not cache.holds(index) else cache.get(index, make)


def fill_images(
    images: np.ndarray,
    numbers: np.ndarray,
    make_item: Callable[[int], LabelledImage],
    items: BoxItems = BOXES,
) -> Targets:
    """Make the item of every number and write its image into `images`.

    Args:
        images: (B, 3, H, W) uint8, contiguous, overwritten.
        numbers: (B,) of samples; B may be 0.
        make_item: from one of them to an image of size (H, W).
        items: makes its targets.

    Returns:
        The targets of all items together.
    """
    targets = []
    for position, number in enumerate(numbers.tolist()):
        item = make_item(number)
        for channel in range(3):  # BGR to RGB; three times as fast as assigning a transposed view
            cv2.extractChannel(item.image, 2 - channel, images[position, channel])
        targets.append(items.targets(item))
    return join_targets(targets)


@contextmanager
def _naming_image(image_path: Path) -> Iterator[None]:
    """Add the image's path to any failure inside that does not name an image."""
    try:
        yield
    except DatasetError:
        raise
    except UserError as error:
        raise DatasetError(f"{image_path}: {error}") from error
    except Exception as error:
        raise RuntimeError(f"{image_path}: {type(error).__name__}: {error}") from error
