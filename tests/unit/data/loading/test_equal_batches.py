"""Workers, caches, ranks and a start in the middle change no byte of any batch."""

from collections.abc import Iterator
from functools import partial
from itertools import islice

import numpy as np
import pytest

from duet.backend.processes import Process
from duet.utils.data.loading.batch import Batch
from duet.utils.data.loading.batches import TrainRecipe, ValRecipe, finished
from duet.utils.data.loading.items import BOXES, CLASSES, MaskItems
from duet.utils.data.loading.loader import TrainLoader, ValLoader
from duet.utils.processes.world import ALONE, World
from tests.unit.data.compared import EVERYTHING, OF_CLASSES, digest

BATCH = 8
SCORES = (0.9, 0.1, 0.3, 0.0, 0.5)


class Training:
    """The batches of an epoch."""

    def __init__(self, augment=EVERYTHING, leaves_pixels=False, **options):
        self.recipe = TrainRecipe(64, BATCH, augment, 3, **options)
        self.leaves_pixels = leaves_pixels

    def loader(self, samples, **options) -> TrainLoader:
        loader = TrainLoader(samples, self.recipe, **options)
        if self.leaves_pixels:
            loader.leave_pixels()
        return loader

    def batches(self, loader: TrainLoader, first: int) -> Iterator[Batch]:
        return loader.epoch(1, first, SCORES)


class Validation:
    """The batches of a validation."""

    def __init__(self, items=BOXES, **options):
        recipe = ValRecipe(64, BATCH, items=items, **options)
        self.loader = partial(ValLoader, recipe=recipe)

    def batches(self, loader: ValLoader, first: int) -> Iterator[Batch]:
        return islice(loader, first, None)


CASES = {
    "train": Training(),
    "rect": Training(rectangular=True),
    "weights": Training(image_weights=True),
    "masks": Training(items=MaskItems()),
    "a mask each": Training(items=MaskItems(ratio=2, overlap=False)),
    "classes": Training(items=CLASSES, augment=OF_CLASSES),
    "pixels left": Training(leaves_pixels=True),
    "val": Validation(),
    "val square": Validation(rectangular=False),
    "val masks": Validation(MaskItems()),
    "val classes": Validation(CLASSES),
}
each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def batches_of(case, samples, workers=0, cache="", world=ALONE, first=0) -> list[Batch]:
    with case.loader(samples, workers=workers, cache=cache, world=world) as loader:
        return list(case.batches(loader, first))


@each_case
@pytest.mark.parametrize(("workers", "cache"), [(2, "ram"), (0, "disk")])
def test_workers_cache_and_start_position_change_no_batch(samples, case, workers, cache):
    expected = [digest(batch) for batch in batches_of(case, samples)]
    assert len(set(expected)) == len(expected) > 2
    with case.loader(samples, workers=workers, cache=cache) as loader:
        for first in (0, 1, 0):
            assert [digest(x) for x in case.batches(loader, first)] == expected[first:]


def joined(shards: list[Batch]) -> list[np.ndarray]:
    """The arrays of shards one behind the other, and the masks of their objects."""
    before = np.cumsum([0, *(len(shard.images) for shard in shards)]).tolist()
    rows = [(x.images, x.sample_indices, *x.targets[1:3], *(x.finishing or ())) for x in shards]
    index = [x.targets.image_index + n for x, n in zip(shards, before, strict=False)]
    masks = [
        maps[map_index] == value[:, None, None]
        for maps, map_index, value in (x.targets.masks for x in shards if x.targets.masks)
    ]
    return [np.concatenate(x) for x in (*zip(*rows, strict=True), index, *([masks] * bool(masks)))]


@each_case
@pytest.mark.parametrize("world_size", [2, 3])
def test_rank_shards_join_to_the_single_process_batch(samples, case, world_size):
    whole = batches_of(case, samples)
    worlds = [World(Process(rank, 0, world_size)) for rank in range(world_size)]
    ranks = [batches_of(case, samples, world=world) for world in worlds]
    for batch, *shards in zip(whole, *ranks, strict=True):
        for found, expected in zip(joined(shards), joined([batch]), strict=True):
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected)
        assert sum((shard.letterboxes for shard in shards), ()) == batch.letterboxes
        for shard in shards:
            np.testing.assert_array_equal(shard.global_indices, batch.global_indices)


@pytest.mark.parametrize("case", ["train", "rect", "masks", "classes"])
def test_deferred_pixels_equal_the_usual_batch(samples, case):
    usual = CASES[case]
    with usual.loader(samples, workers=1) as loader:
        expected = list(usual.batches(loader, 0))
        loader.leave_pixels()  # from the next epoch on, with the same workers
        found = [*usual.batches(loader, 0), loader.batch(1, 2, SCORES)]
    for batch, before in zip(found, [*expected, expected[2]], strict=True):
        assert not np.array_equal(batch.images, before.images)
        for piece, one in zip(batch.pieces(3), before.pieces(3), strict=True):
            np.testing.assert_array_equal(finished(piece.images, piece.finishing), one.images)
        images = finished(batch.images, batch.finishing)
        assert digest(batch._replace(images=images, finishing=None)) == digest(before)


@pytest.mark.parametrize(
    ("plain", "masked"), [("train", "masks"), ("train", "a mask each"), ("val", "val masks")]
)
def test_masks_change_neither_images_nor_boxes(samples, plain, masked):
    pairs = (batches_of(CASES[case], samples) for case in (plain, masked))
    for batch, other in zip(*pairs, strict=True):
        targets, masks = other.targets, other.targets.masks
        assert digest(other._replace(targets=targets._replace(masks=None))) == digest(batch)
        assert len(masks.map_index) == len(masks.value) == len(targets.class_index)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("case", [CASES["train"], CASES["val"], CASES["masks"]], ids=str)
def test_rank_without_images_gets_empty_batches(samples, case, workers):
    (batch,) = batches_of(case, samples[:1], workers, world=World(Process(1, 1, 2)))
    assert batch.images.shape[:2] == (0, 3) and batch.images.shape[2] >= 64
    assert [array.shape for array in batch.targets.arrays()] == [(0,), (0,), (0, 4)]
    assert [array.dtype for array in batch.targets.arrays()] == [np.int64, np.int64, np.float32]
    assert batch.letterboxes == () and len(batch.sample_indices) == 0
    assert batch.global_indices.tolist() == [0]
