"""Loaders: iterate over the batches of an epoch, built here or by worker processes."""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from duet.utils.data.loading.batch import Batch
from duet.utils.data.loading.batches import TrainBatches, TrainRecipe, ValBatches, ValRecipe
from duet.utils.data.loading.image_cache import create_cache
from duet.utils.data.loading.order import Epoch
from duet.utils.data.loading.workers import WorkerPool
from duet.utils.data.sources.samples import Sample, table_of
from duet.utils.memory import require_memory
from duet.utils.processes.world import ALONE, World
from duet.utils.text import count

Own = TypeVar("Own", bound="_Loader[Any]")
Recipe = TypeVar("Recipe", TrainRecipe, ValRecipe)


class _Loader(Generic[Recipe]):
    """A source of batches, with or without workers.

    Args:
        samples: from `splits.load_split`; at least one.
        recipe: how they become batches.
        workers: processes; 0 builds in this process.
        cache: where decoded images are kept: "" nowhere, "ram" or "disk".
        world: each rank builds a shard of every batch; ranks of a machine share a cache.

    Attributes:
        cached: how many of its images a cache takes: "all", "part" or "none".
        largest_shape: (B, 3, H, W) of this rank's shard of the largest batch.
    """

    kind: type[Any]  # of the batches
    split: str  # for the log
    cache_fraction: float  # of free memory or disk, for both caches, the model and the workers

    def __init__(
        self,
        samples: Sequence[Sample],
        recipe: Recipe,
        workers: int = 0,
        cache: str = "",
        world: World = ALONE,
    ):
        assert workers >= 0
        source = self.kind(table_of(samples), recipe, world.process.shard)
        if cache:
            kept = create_cache(cache, source.image_sizes(), self.cache_fraction, self.split, world)
            source = dataclasses.replace(source, cache=kept)
        self.world = world
        self._workers = workers
        self._use(source)

    def _use(self, source: TrainBatches | ValBatches) -> None:
        shapes = (source.shape(batch_index) for batch_index in range(len(source)))
        self.largest_shape = max(shapes, key=math.prod)
        images, _, height, width = self.largest_shape
        self._pool = WorkerPool(source, self._workers) if self._workers else None
        batches = self._pool.num_slots if self._pool else 1
        require_memory(
            batches * math.prod(self.largest_shape),
            f"batches of {count(images, 'image')} of {width} x {height} px, {batches} at a time,",
        )
        self.cached = source.cache.extent if source.cache else "none"
        self._source = source

    def lend_to(self, device: str) -> None:
        """Let images change once the next batch is asked for; `device` copies them until then."""
        if self._pool is not None:
            self._pool.lend_to(device)

    def __len__(self) -> int:
        """Return the number of batches in an epoch, the same for all ranks."""
        return len(self._source)

    def start(self) -> None:
        """Start the workers before the first epoch, beside other work."""
        if self._pool is not None:
            self._pool.start()

    def close(self) -> None:
        """End the workers; an epoch that is still being iterated over ends with an error."""
        if self._pool is not None:
            self._pool.close()

    def __enter__(self: Own) -> Own:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _run(
        self, epoch: Epoch, first_batch: int, following: Epoch | None = None
    ) -> Iterator[Batch]:
        if self._pool is not None:
            return self._pool.run(epoch, first_batch, following)
        return map(partial(self._source.shard_of, epoch), range(first_batch, len(self)))


class TrainLoader(_Loader[TrainRecipe]):
    """Augmented batches; each sample depends only on (seed, epoch, index)."""

    kind, split, cache_fraction = TrainBatches, "training", 0.5
    _source: TrainBatches
    _leaves_pixels = False

    def leave_pixels(self) -> None:
        """Leave colours and flips to the device from the next epoch on (`batch.Finishing`)."""
        self._leaves_pixels = True

    def align(self, stride: int) -> None:
        """Make the sides of rectangular batches multiples of a model's stride, before an epoch."""
        if self._source.recipe.rectangular and stride > self._source.stride:
            self.close()
            self._use(dataclasses.replace(self._source, stride=stride))

    def epoch(
        self,
        epoch: int,
        first_batch: int = 0,
        class_scores: Sequence[float] = (),
        is_last: bool = False,
    ) -> Iterator[Batch]:
        """Return the batches of an epoch from `first_batch` on; only one epoch runs at a time.

        Args:
            class_scores: for --image-weights, as in `order.Epoch`.
            is_last: False to build the first batches of the next epoch, if its order is known,
                while the last ones of this epoch are used.
        """
        is_known = not (is_last or self._source.recipe.image_weights)
        following = self._epoch(epoch + 1, ()) if is_known else None
        return self._run(self._epoch(epoch, class_scores), first_batch, following)

    def batch(self, epoch: int, batch_index: int, class_scores: Sequence[float] = ()) -> Batch:
        return self._source.shard_of(self._epoch(epoch, class_scores), batch_index)

    def _epoch(self, number: int, class_scores: Sequence[float]) -> Epoch:
        return Epoch(number, tuple(class_scores), self._leaves_pixels)


class ValLoader(_Loader[ValRecipe]):
    """Letterboxed batches in a fixed order."""

    kind, split, cache_fraction = ValBatches, "validation", 0.2

    def start(self) -> None:
        """Start the workers, and let them build the first batches."""
        if self._pool is not None:
            self._pool.request(Epoch(0))

    def __iter__(self) -> Iterator[Batch]:
        return self._run(Epoch(0), first_batch=0)
