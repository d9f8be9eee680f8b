"""Which samples form a batch of a training, and in which shape."""

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
from utils.data.augment.strengths import AugmentConfig
from utils.data.image.decoding import LabelledImage, SourceImage, reduced_size
from utils.data.loading.batch import Batch, Targets, join_targets
from utils.data.loading.image_cache import ImageCache
from utils.data.loading.items import BOXES, Items
from utils.data.loading.order import Epoch, Order, draws_of, place_in_window
from utils.data.loading.quads import QUAD, draw_enlarged, join_quads
from utils.data.loading.reading import decode, pixel_boxes, pixel_polygons
from utils.data.loading.recent_images import RecentImages
from utils.data.loading.recipe import SQUARE, BatchRecipe, rectangle
from utils.data.randomness import sample_generator
from utils.data.sources.samples import Sample, SampleTable
from utils.errors import DatasetError, UserError


class BatchSource(Protocol):
    """A recipe for batches that can be sent to another process; a dataclass."""

    @property
    def samples(self) -> SampleTable:
        """Those that batches are made of."""

    def __len__(self) -> int:
        """Return the number of batches in an epoch."""

    def indices(self, epoch: Epoch, batch_index: int) -> np.ndarray:
        """Return the sample indices of a whole batch, over all ranks, int64."""

    def shape(self, batch_index: int) -> tuple[int, int, int, int]:
        """Return the shape (B, 3, H, W) of the images of this rank's shard; B may be 0."""

    def build(self, epoch: Epoch, batch_index: int, images: np.ndarray) -> Batch:
        """Fill `images`, uint8 of that shape, and return the shard of the batch around it."""


@dataclass(frozen=True)
class TrainBatches:
    """A rank's shard of augmented batches; the last batch may be smaller.

    They are square, or with a rectangular recipe of the smallest shape, in multiples of `stride`,
    that holds the images of all ranks. With a quad recipe each image is made of four: up to three
    images at the end of an epoch, other ones each time, are left out.
    """

    samples: SampleTable
    image_size: int
    batch_size: int  # samples over all ranks
    augment: AugmentConfig
    seed: int
    process: Process = Process()
    recipe: BatchRecipe = SQUARE
    stride: int = 32
    cache: ImageCache | None = None  # made for `image_sizes`
    recent: RecentImages | None = None  # for `uncached_sizes` and the window of the recipe
    items: Items = BOXES

    def __len__(self) -> int:
        return math.ceil(self.num_images / self.batch_size)

    @property
    def num_images(self) -> int:
        """How many samples an epoch shows, repeated ones each time."""
        return len(self._order) // self._group * self._group

    @property
    def _group(self) -> int:
        """Samples that become one image."""
        return QUAD if self.recipe.quad else 1

    @cached_property
    def _order(self) -> Order:
        return self.recipe.order(self.seed, self.samples)

    def shape(self, batch_index: int) -> tuple[int, int, int, int]:
        num_before = batch_index * self.batch_size
        num_images = min(self.batch_size, self.num_images - num_before) // self._group
        side = 2 if self.recipe.quad else 1
        height, width = (side * x for x in self._image_shape(batch_index))
        return len(self.process.shard(range(num_images))), 3, height, width

    def _image_shape(self, batch_index: int) -> tuple[int, int]:
        """Return (height, width) of one sample."""
        if not self.recipe.rectangular:
            return self.image_size, self.image_size
        indices = self.indices(Epoch(0), batch_index)  # the same in all epochs
        sizes = [(height, width) for height, width in self.samples.sizes[indices].tolist()]
        return rectangle(sizes, self.image_size, self.stride)

    def build(self, epoch: Epoch, batch_index: int, images: np.ndarray) -> Batch:
        draws = self._draws(epoch)
        positions = self._positions(batch_index)
        mine = self.process.shard(positions.reshape(-1, self._group))
        make_item = partial(self._item, epoch.number, draws, self._image_shape(batch_index))
        if self.recipe.quad:
            _, channels, height, width = images.shape
            singles = np.empty((mine.size, channels, height // 2, width // 2), np.uint8)
            targets = fill_images(singles, mine.reshape(-1), make_item, self.items)
            enlarged = draw_enlarged(self.seed, epoch.number, draws[mine[:, 0]])
            targets = join_quads(singles, targets, enlarged, images)
        else:
            targets = fill_images(images, mine.reshape(-1), make_item, self.items)
        indices, global_indices = (
            draws[places.reshape(-1)] % len(self.samples) for places in (mine, positions)
        )
        return Batch(images, targets, indices, (), global_indices)

    def indices(self, epoch: Epoch, batch_index: int) -> np.ndarray:
        return self._draws(epoch)[self._positions(batch_index)] % len(self.samples)

    def _draws(self, epoch: Epoch) -> np.ndarray:
        """Return the numbers of `draws_of` of an epoch, over all ranks, (num_images,) int64."""
        return draws_of(self._order, epoch, len(self.samples))[: self.num_images]

    def _positions(self, batch_index: int) -> np.ndarray:
        """Return where in the epoch's order a whole batch lies, over all ranks, (N,) int64."""
        start = batch_index * self.batch_size
        return np.arange(start, min(start + self.batch_size, self.num_images))

    def _item(
        self, epoch: int, draws: np.ndarray, size: tuple[int, int], position: int
    ) -> LabelledImage:
        """Make the image at a position of an epoch's order, (height, width) in size."""
        draw_number = int(draws[position])
        index, num_samples = draw_number % len(self.samples), len(self.samples)
        generator = sample_generator(self.seed, epoch, draw_number)
        strengths = self.augment.in_epoch(epoch)
        window = min(self.recipe.mosaic_window, len(draws))
        tiles: list[tuple[int, int | None]]
        if window:
            drawn = self.items.draw(strengths, generator, 0, window)
            places = [place_in_window(position, back, window) for back in drawn.samples]
            tiles = [(int(draws[at]) % num_samples, epoch * len(draws) + at) for at in places]
        else:
            drawn = self.items.draw(strengths, generator, index, num_samples)
            tiles = [(tile, None) for tile in drawn.samples]
        with naming_image(self.samples[index].image_path):
            sources = [self._source(*tile) for tile in tiles]
            return self.items.make(drawn, sources, self.image_size, size)

    def image_sizes(self) -> list[tuple[int, int]]:
        """Return (height, width) of each sample as it is decoded and cached."""
        sizes = [(height, width) for height, width in self.samples.sizes.tolist()]
        return [reduced_size(size, self.items.reduction(size, self.image_size)) for size in sizes]

    def uncached_sizes(self) -> list[tuple[int, int]]:
        """Return those of `image_sizes` whose images no cache keeps."""
        sizes = enumerate(self.image_sizes())
        return [size for index, size in sizes if not self._is_cached(index)]

    def _source(self, index: int, place: int | None) -> SourceImage:
        """Return a sample's image; `place` is where `recent` keeps it, if it does."""
        sample = self.samples[index]
        size = sample.height, sample.width
        reduction = self.items.reduction(size, self.image_size)
        decoded = partial(self._decode, index, sample, reduction)
        if self.recent is not None and place is not None and not self._is_cached(index):
            decoded_size = reduced_size(size, reduction)
            decoded = partial(self.recent.get, place, index, decoded_size, decoded)
        return SourceImage(
            size,
            sample.class_index,
            pixel_boxes(sample),
            reduction,
            decoded,
            pixel_polygons(sample),
        )

    def _is_cached(self, index: int) -> bool:
        return self.cache is not None and self.cache.holds(index)

    def _decode(self, index: int, sample: Sample, reduction: int) -> np.ndarray:
        with naming_image(sample.image_path):  # any tile of a mosaic may fail
            if self.cache is None or not self.cache.holds(index):
                return decode(sample, reduction)
            return self.cache.get(index, partial(decode, sample, reduction))


def fill_images(
    images: np.ndarray,
    numbers: np.ndarray,
    make_item: Callable[[int], LabelledImage],
    items: Items = BOXES,
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


class _NamedError(RuntimeError):
    """A failure that names its image."""


@contextmanager
def naming_image(image_path: Path) -> Iterator[None]:
    """Add the image's path to any failure inside that does not name an image yet."""
    try:
        yield
    except (DatasetError, _NamedError):
        raise
    except UserError as error:
        raise DatasetError(f"{image_path}: {error}") from error
    except Exception as error:
        raise _NamedError(f"{image_path}: {type(error).__name__}: {error}") from error
