"""Batches: their samples, their shape, and how they are built."""

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import cv2
import numpy as np

from duet.utils.data.augment.sample import change_hsv, flip, flip_objects, without_finish
from duet.utils.data.image.decoding import LabelledImage, SourceImage, choose_reduction
from duet.utils.data.image.letterbox import Letterbox, resize_linear
from duet.utils.data.loading.batch import Batch, Finishing, Targets, join_targets
from duet.utils.data.loading.image_cache import ImageCache
from duet.utils.data.loading.items import BOXES, BoxItems
from duet.utils.data.loading.order import Epoch, aspect_order, rectangle, weighted
from duet.utils.data.randomness import epoch_order, sample_generator
from duet.utils.data.sources.samples import SampleTable, decode, objects_of
from duet.utils.errors import DatasetError, UserError
from duet.utils.strengths import AugmentConfig

Name = TypeVar("Name")
# Returns a rank's contiguous part of a sequence, such as the samples of a batch.
Shard = Callable[[Any], Any]


def all_of(items: Any) -> Any:
    return items


WHOLE = slice(None)

# The public recipe's margin around rectangular validation images, in strides.
RECTANGLE_MARGIN = 0.5


@dataclass(frozen=True)
class TrainRecipe:
    """How samples become training batches, the same on all ranks; rectangular: no mosaics."""

    image_size: int  # side of square images, pixels
    batch_size: int  # samples over all ranks; the last batch of an epoch may be smaller
    augment: AugmentConfig = AugmentConfig()
    seed: int = 0  # from 0 up
    rectangular: bool = False
    image_weights: bool = False
    items: BoxItems = BOXES  # the task's
    mosaic_epochs: int | None = None  # epochs with mosaics; None: all

    def __post_init__(self) -> None:
        if self.rectangular:
            augment = dataclasses.replace(self.augment, mosaic=0.0)
            object.__setattr__(self, "augment", augment)

    def strengths(self, epoch: int) -> AugmentConfig:
        """Return the strengths in an epoch, from 0: the last epochs may have no mosaics."""
        if self.mosaic_epochs is None or epoch < self.mosaic_epochs:
            return self.augment
        return dataclasses.replace(self.augment, mosaic=0.0, mixup=0.0)


@dataclass(frozen=True)
class ValRecipe:
    """How samples become batches of letterboxed images in a fixed order, the same on all ranks.

    Rectangular batches hold images of similar aspect ratio; their sides are the smallest multiples
    of `stride` that hold the images of all ranks and half a stride. Sides of square batches are
    the smallest multiple of `stride` from `image_size` up. In batches of a fixed size each image is
    as large as fits.
    """

    image_size: int  # long side of every image, pixels
    batch_size: int  # samples over all ranks; the last batch may be smaller
    stride: int = 32
    rectangular: bool = True  # unless the size is fixed, or the task's images are square
    fixed_size: tuple[int, int] | None = None  # (height, width)
    items: BoxItems = BOXES  # the task's

    @property
    def has_rectangles(self) -> bool:
        return self.rectangular and self.fixed_size is None and self.items.has_rectangles


# Every batch of an epoch asks for the same order: the last few are kept as long as their samples.
Orders = dict[tuple[TrainRecipe, Epoch], np.ndarray]
_orders: WeakKeyDictionary[SampleTable, Orders] = WeakKeyDictionary()
KEPT_ORDERS = 4


def draws_of(recipe: TrainRecipe, samples: SampleTable, epoch: Epoch) -> np.ndarray:
    """Return a distinct number for each sample of an epoch in its order, (S,) int64, read-only.

    Modulo `len(samples)` it is the sample index. The k-th repetition of a sample in an epoch is
    k * `len(samples)` higher, so it is augmented differently.
    """
    if recipe.rectangular:
        order = aspect_order(samples)
    elif recipe.image_weights:
        order = weighted(recipe.seed, samples, epoch)
    else:
        order = epoch_order(recipe.seed, epoch.number, len(samples))
    by_sample = np.argsort(order, kind="stable")
    grouped = order[by_sample]
    draws = np.empty_like(order)
    repetition = np.arange(len(order)) - np.searchsorted(grouped, grouped)
    draws[by_sample] = grouped + repetition * len(samples)
    draws.setflags(write=False)
    return draws


class Batches(ABC):
    """A rank's shard of batches, the last of which may be smaller."""

    samples: SampleTable
    recipe: TrainRecipe | ValRecipe
    shard: Shard
    cache: ImageCache | None  # made for `image_sizes`

    @abstractmethod
    def indices(self, epoch: Epoch, batch_index: int) -> np.ndarray:
        """Return the sample indices of a whole batch, over all ranks, int64."""

    @abstractmethod
    def build(
        self, epoch: Epoch, batch_index: int, images: np.ndarray, part: slice = WHOLE
    ) -> Batch:
        """Fill `images`, a part of uint8 of `shape`, and return that part of the shard."""

    @abstractmethod
    def _size(self, batch_index: int) -> tuple[int, int]:
        """Return (height, width) of the images of a batch, the same on all ranks."""

    @abstractmethod
    def _kept_size(self, size: tuple[int, int]) -> tuple[int, int]:
        """Return the size at which an image of (height, width) is cached."""

    def __len__(self) -> int:
        return math.ceil(len(self.samples) / self.recipe.batch_size)

    def shard_of(self, epoch: Epoch, batch_index: int) -> Batch:
        """Return this rank's shard of a batch, in memory of its own."""
        return self.build(epoch, batch_index, np.empty(self.shape(batch_index), np.uint8))

    def shape(self, batch_index: int) -> tuple[int, int, int, int]:
        """Return the shape (B, 3, H, W) of the images of this rank's shard; B may be 0."""
        height, width = self._size(batch_index)
        return len(self.shard(self._positions(batch_index))), 3, height, width

    def image_sizes(self) -> list[tuple[int, int]]:
        """Return (height, width) of each sample as it is resized and cached."""
        return [self._kept_size((height, width)) for height, width in self.samples.sizes.tolist()]

    def _positions(self, batch_index: int) -> range:
        start, number = batch_index * self.recipe.batch_size, self.recipe.batch_size
        return range(start, min(start + number, len(self.samples)))

    def _rectangle(self, batch_index: int, stride: int, margin: float = 0.0) -> tuple[int, int]:
        sizes = self.samples.sizes[self.indices(Epoch(0), batch_index)]  # the same in all epochs
        pairs = [(height, width) for height, width in sizes.tolist()]
        return rectangle(pairs, self.recipe.image_size, stride, margin)

    def _cached(self, index: int, make: Callable[[], np.ndarray]) -> np.ndarray:
        return make() if self.cache is None else self.cache.get(index, make)


@dataclass(frozen=True)
class TrainBatches(Batches):
    """Augmented batches.

    They are square, or with a rectangular order of the smallest shape, in multiples of `stride`,
    that holds the images of all ranks.
    """

    samples: SampleTable
    recipe: TrainRecipe
    shard: Shard = all_of
    stride: int = 32
    cache: ImageCache | None = None

    def build(
        self, epoch: Epoch, batch_index: int, images: np.ndarray, part: slice = WHOLE
    ) -> Batch:
        draws = self._draws(epoch)[self._positions(batch_index)]
        mine = self.shard(draws)[part]
        num_samples = len(self.samples)
        indices = mine % num_samples
        drawn = [self._draw(epoch, number) for number in mine.tolist()]
        size = images.shape[2], images.shape[3]
        make_item = partial(self._item, epoch.leaves_pixels, size)
        pairs = list(zip(indices.tolist(), drawn, strict=True))
        targets = fill_images(images, pairs, make_item, self.recipe.items)
        finishing = finishing_of(drawn) if epoch.leaves_pixels else None
        return Batch(images, targets, indices, (), draws % num_samples, finishing)

    def indices(self, epoch: Epoch, batch_index: int) -> np.ndarray:
        return self._draws(epoch)[self._positions(batch_index)] % len(self.samples)

    def _draws(self, epoch: Epoch) -> np.ndarray:
        """Return `draws_of` an epoch, over all ranks, (S,) int64."""
        known, key = _orders.setdefault(self.samples, {}), (self.recipe, epoch)
        if key not in known:
            if len(known) == KEPT_ORDERS:
                del known[next(iter(known))]
            known[key] = draws_of(self.recipe, self.samples, epoch)
        return known[key]

    def _draw(self, epoch: Epoch, draw_number: int) -> Any:
        num_samples, recipe = len(self.samples), self.recipe
        generator = sample_generator(recipe.seed, epoch.number, draw_number)
        strengths, index = recipe.strengths(epoch.number), draw_number % num_samples
        return recipe.items.draw(strengths, generator, index, num_samples)

    def _item(
        self, leaves_pixels: bool, size: tuple[int, int], pair: tuple[int, Any]
    ) -> LabelledImage:
        index, drawn = pair
        with _naming_image(self.samples[index].image_path):
            sources = [self._source(tile) for tile in drawn.samples]
            shown = without_finish(drawn) if leaves_pixels else drawn
            item = self.recipe.items.make(shown, sources, self.recipe.image_size, size)
            return flip_objects(drawn, item) if leaves_pixels else item

    def _size(self, batch_index: int) -> tuple[int, int]:
        side = self.recipe.image_size
        is_square = not self.recipe.rectangular
        return (side, side) if is_square else self._rectangle(batch_index, self.stride)

    def _kept_size(self, size: tuple[int, int]) -> tuple[int, int]:
        return self.recipe.items.kept_size(size, self.recipe.image_size)

    def _source(self, index: int) -> SourceImage:
        sample = self.samples[index]
        size = sample.height, sample.width
        kept_size = self._kept_size(size)
        reduction = choose_reduction(size, max(kept_size))

        def make() -> np.ndarray:  # more than half the decoded size, so no pixel is skipped
            return resize_linear(decode(sample, reduction), kept_size)

        read = partial(self._cached, index, make)
        return SourceImage(size, objects_of(sample), kept_size, read, reduction)


@dataclass(frozen=True)
class ValBatches(Batches):
    """Letterboxed batches."""

    samples: SampleTable
    recipe: ValRecipe
    shard: Shard = all_of
    cache: ImageCache | None = None

    def build(
        self, epoch: Epoch, batch_index: int, images: np.ndarray, part: slice = WHOLE
    ) -> Batch:
        global_indices = self.indices(epoch, batch_index)
        indices = self.shard(global_indices)[part]
        input_size = images.shape[2], images.shape[3]
        sizes = self.samples.sizes[indices].tolist()
        letterboxes = tuple(self._letterbox((h, w), input_size) for h, w in sizes)
        make_item, items = partial(self._item, input_size), self.recipe.items
        targets = fill_images(images, indices.tolist(), make_item, items)
        return Batch(images, targets, indices, letterboxes, global_indices)

    def indices(self, epoch: Epoch, batch_index: int) -> np.ndarray:
        return self._order[self._positions(batch_index)]

    @cached_property
    def _order(self) -> np.ndarray:
        if self.recipe.has_rectangles:
            return aspect_order(self.samples)
        return np.arange(len(self.samples))

    def _size(self, batch_index: int) -> tuple[int, int]:
        recipe = self.recipe
        if recipe.has_rectangles:
            return self._rectangle(batch_index, recipe.stride, RECTANGLE_MARGIN)
        side = math.ceil(recipe.image_size / recipe.stride) * recipe.stride
        return recipe.fixed_size or (side, side)

    def _letterbox(self, size: tuple[int, int], input_size: tuple[int, int]) -> Letterbox:
        recipe, is_fixed = self.recipe, self.recipe.fixed_size is not None
        return recipe.items.place(size, recipe.image_size, input_size, is_fixed)

    def _kept_size(self, size: tuple[int, int]) -> tuple[int, int]:
        side = self.recipe.image_size
        return self._letterbox(size, (side, side)).resized_size

    def _item(self, input_size: tuple[int, int], index: int) -> LabelledImage:
        sample, items = self.samples[index], self.recipe.items
        placement = self._letterbox((sample.height, sample.width), input_size)
        with _naming_image(sample.image_path):
            image = self._cached(index, lambda: items.resize(decode(sample), placement))
            return items.fit(LabelledImage(image, *objects_of(sample)), placement)


def fill_images(
    images: np.ndarray,
    names: Sequence[Name],
    make_item: Callable[[Name], LabelledImage],
    items: BoxItems = BOXES,
) -> Targets:
    """Make the item of each name, write its image into `images`, and return all targets.

    Args:
        images: (B, 3, H, W) uint8, contiguous, overwritten.
        names: B of them, such as sample indices; B may be 0.
        make_item: returns the (H, W) image of a name.
    """
    targets = []
    for position, name in enumerate(names):
        item = make_item(name)
        # BGR to RGB, in place; eight times as fast as assigning a transposed view.
        cv2.split(item.image, list(images[position, ::-1]))
        targets.append(items.targets(item))
    return join_targets(targets)


def finishing_of(drawn: Sequence[Any]) -> Finishing:
    flips = [(draw.flip_up_down, draw.flip_left_right) for draw in drawn]
    gains = np.array([draw.hsv_gains for draw in drawn], np.float64).reshape(-1, 3)
    return Finishing(gains, np.array(flips, bool).reshape(-1, 2))


def finished(images: np.ndarray, finishing: Finishing) -> np.ndarray:
    """Return images (B, 3, H, W) uint8 RGB finished as a worker does it."""
    found = np.empty_like(images)
    for image, gains, flips, planes in zip(images, *finishing, found, strict=True):
        pixels = np.ascontiguousarray(image[::-1].transpose(1, 2, 0))  # BGR
        cv2.split(flip(change_hsv(pixels, tuple(gains.tolist())), *flips), list(planes[::-1]))
    return found


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
