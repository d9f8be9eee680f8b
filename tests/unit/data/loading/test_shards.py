"""Batches built by several ranks: the shards joined are the batches of a single process."""

import math

import numpy as np
import pytest

from backend.processes import Process
from tests.unit.data.batch_digest import EVERYTHING
from utils.data.loading.loader import TrainLoader, ValLoader
from utils.data.shapes.dataset import ShapesConfig, draw_dataset
from utils.data.sources.dataset import load_dataset
from utils.data.sources.image_files import list_images
from utils.data.sources.labels import scan_samples
from utils.processes.world import ALONE, World

NUM_SAMPLES = 13  # in batches of 6 the last one is a single image: two of three ranks are idle


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "shapes"
    config = ShapesConfig(num_train=NUM_SAMPLES, num_val=1, image_side=80)
    return scan_samples(list_images(load_dataset(draw_dataset(folder, config)).train), 5).samples


def train_batches(samples, world, workers, cache=""):
    loader = TrainLoader(
        samples, 64, 6, EVERYTHING, seed=0, workers=workers, cache=cache, world=world
    )
    with loader:
        assert len(loader) == math.ceil(len(samples) / 6)
        return list(loader.epoch(3))


def square_batches(samples, world, workers, cache=""):
    with ValLoader(samples, 64, 6, workers, 32, False, cache, world=world) as loader:
        return list(loader)


def rectangular_batches(samples, world, workers, cache=""):
    with ValLoader(samples, 64, 6, workers, 16, True, cache, world=world) as loader:
        assert len(loader) == math.ceil(len(samples) / 6)
        return list(loader)


def assert_shards_make(whole, shards):
    """Compare byte for byte; image indices of a shard go on from those of the shards before."""
    joined = [np.concatenate([shard.images for shard in shards])]
    before = np.cumsum([0, *(len(shard.images) for shard in shards)])
    places = [shard.targets.image_index + n for shard, n in zip(shards, before, strict=False)]
    joined.append(np.concatenate(places))
    for name in ("class_index", "boxes_cxcywh_norm"):
        joined.append(np.concatenate([getattr(shard.targets, name) for shard in shards]))
    joined.append(np.concatenate([shard.sample_indices for shard in shards]))
    expected = (whole.images, *whole.targets.arrays(), whole.sample_indices)
    for found, array in zip(joined, expected, strict=True):
        assert found.dtype == array.dtype
        np.testing.assert_array_equal(found, array)
    assert sum((shard.letterboxes for shard in shards), ()) == whole.letterboxes
    for shard in shards:
        np.testing.assert_array_equal(shard.global_indices, whole.sample_indices)
        assert all(shard.targets.image_index < len(shard.images))


@pytest.mark.parametrize("batches_of", [train_batches, square_batches, rectangular_batches])
@pytest.mark.parametrize("world_size", [2, 3])
def test_the_shards_of_all_ranks_are_the_batches_of_one_process(samples, batches_of, world_size):
    whole = batches_of(samples, ALONE, workers=0)
    ranks = [
        batches_of(samples, World(Process(rank, rank, world_size)), 0) for rank in range(world_size)
    ]
    for batch, *shards in zip(whole, *ranks, strict=True):
        assert_shards_make(batch, shards)
    sizes = [[len(batch.images) for batch in batches] for batches in ranks]
    assert sizes == {2: [[3, 3, 1], [3, 3, 0]], 3: [[2, 2, 1], [2, 2, 0], [2, 2, 0]]}[world_size]
    assert len({batch.images.shape[2:] for batch in whole}) == (
        2 if batches_of is rectangular_batches else 1
    )


@pytest.mark.parametrize("batches_of", [train_batches, rectangular_batches])
def test_workers_build_the_same_shards(samples, batches_of):
    whole = batches_of(samples, ALONE, workers=0)
    ranks = [batches_of(samples, World(Process(rank, rank, 3)), workers=2) for rank in range(3)]
    for batch, *shards in zip(whole, *ranks, strict=True):
        assert_shards_make(batch, shards)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("batches_of", [train_batches, rectangular_batches])
def test_a_rank_without_any_image_gets_empty_batches(samples, batches_of, workers):
    (batch,) = batches_of(samples[:1], World(Process(1, 1, 2)), workers)
    assert batch.images.shape[:2] == (0, 3) and batch.images.shape[2] >= 64
    assert [array.shape for array in batch.targets.arrays()] == [(0,), (0,), (0, 4)]
    assert [array.dtype for array in batch.targets.arrays()] == [np.int64, np.int64, np.float32]
    assert batch.letterboxes == () and len(batch.sample_indices) == 0
    assert batch.global_indices.tolist() == [0]


def test_shards_differ_by_one_at_most_and_the_first_is_one_of_the_longest():
    for world_size in (1, 2, 3, 7):
        for count in range(20):
            items = list(range(count))
            shards = [Process(rank, rank, world_size).shard(items) for rank in range(world_size)]
            assert sum(shards, []) == items
            assert max(map(len, shards)) - min(map(len, shards)) <= 1
            assert len(shards[0]) == math.ceil(count / world_size)


def test_shards_from_a_later_batch_on_are_those_of_the_whole_epoch(samples):
    whole = rectangular_batches(samples, ALONE, workers=0)
    ranks = []
    for rank in range(2):
        with ValLoader(samples, 64, 6, 0, 16, True, world=World(Process(rank, rank, 2))) as loader:
            ranks.append(list(loader.batches(first_batch=1)))
    for batch, *shards in zip(whole[1:], *ranks, strict=True):
        assert_shards_make(batch, shards)
