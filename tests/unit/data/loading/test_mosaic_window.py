"""Mosaics of images near each other in the order: which, how often decoded, the same for all."""

import dataclasses
import logging
import threading
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

import train
from tests.rank_threads import run_rank_threads
from tests.unit.data.batch_digest import EVERYTHING, digest
from utils.cli.hyperparameters import read_hyperparameters
from utils.cli.train_config import TrainConfig, read_train_flags
from utils.data.augment.strengths import AugmentConfig
from utils.data.loading import batches, image_cache, memory, recent_images
from utils.data.loading.batches import TrainBatches
from utils.data.loading.items import BOXES
from utils.data.loading.loader import TrainLoader
from utils.data.loading.order import Epoch, place_in_window
from utils.data.loading.recipe import BatchRecipe
from utils.data.shapes.dataset import ShapesConfig, draw_dataset
from utils.data.sources.dataset import load_dataset
from utils.data.sources.samples import table_of
from utils.data.sources.splits import load_split
from utils.errors import UserError
from utils.processes.world import ALONE

NUM_SAMPLES, BATCH, WINDOW = 21, 4, 6
RECIPES = {
    "shuffled": BatchRecipe(mosaic_window=WINDOW),
    "repeated": BatchRecipe(mosaic_window=WINDOW, repeat_factor=0.9),
    "quad": BatchRecipe(mosaic_window=WINDOW, quad=True),
    "weighted": BatchRecipe(mosaic_window=WINDOW, image_weights=True),
    "of all": BatchRecipe(mosaic_window=1000),
}


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    config = ShapesConfig(num_train=NUM_SAMPLES, num_val=1, image_side=80)
    folder = tmp_path_factory.mktemp("data") / "shapes"
    return load_split(load_dataset(draw_dataset(folder, config)), "train")


def make_loader(samples, recipe, workers=0, cache="", world=ALONE, augment=EVERYTHING):
    return TrainLoader(samples, 64, BATCH, augment, 0, workers, cache, world, recipe)


def digests(loader, epoch=1, first=0):
    with loader:
        return [digest(batch) for batch in loader.epoch(epoch, first)]


@pytest.fixture
def decoded(monkeypatch):
    """Return the number of times that this process decoded each image, by its file's name."""
    counts = Counter()
    real = batches.decode

    def counted(sample, reduction):
        counts[sample.image_path.name] += 1
        return real(sample, reduction)

    monkeypatch.setattr(batches, "decode", counted)
    return counts


@pytest.mark.parametrize("length", [6, 7, 40])
def test_places_are_in_the_order_and_none_is_seen_twice_from_one_position(length):
    for position in range(length):
        places = [place_in_window(position, back, 6) for back in range(6)]
        assert places[0] == position
        assert len(set(places)) == 6
        first = max(position - 5, 0)
        assert set(places) == set(range(first, first + 6))


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_workers_a_cache_and_a_start_in_the_middle_change_no_batch(samples, recipe):
    expected = digests(make_loader(samples, recipe))
    assert len(set(expected)) == len(expected) > 2
    assert digests(make_loader(samples, recipe, cache="ram")) == expected
    assert digests(make_loader(samples, recipe), first=2) == expected[2:]
    assert digest(make_loader(samples, recipe).batch(1, 1)) == expected[1]
    with make_loader(samples, recipe, workers=2) as loader:
        assert [digest(batch) for batch in loader.epoch(0)] != expected
        assert [digest(batch) for batch in loader.epoch(1)] == expected


def test_without_a_window_partners_come_from_all_samples(samples):
    assert digests(make_loader(samples, BatchRecipe())) != digests(
        make_loader(samples, RECIPES["of all"])
    )


@pytest.mark.parametrize(
    ("window", "workers", "slots", "remedy"),
    [
        (6, 1, 14, "fewer --workers or a smaller --batch-size"),
        (6, 2, NUM_SAMPLES, "fewer --workers or a smaller --batch-size"),
        (9, 1, 17, "a smaller --mosaic-window"),
    ],
)
def test_too_little_memory_names_what_takes_the_most(
    samples, monkeypatch, window, workers, slots, remedy
):
    monkeypatch.setattr(memory, "free_memory", lambda: 1000)
    recipe = BatchRecipe(mosaic_window=window)
    message = f"--mosaic-window: {slots} decoded images .*; use {remedy}, or leave it out"
    with pytest.raises(UserError, match=message):
        make_loader(samples, recipe, workers)


@pytest.fixture
def required(monkeypatch):
    """Return the bytes that each ring required."""
    sizes = []
    monkeypatch.setattr(recent_images, "require_memory", lambda size, *_: sizes.append(size))
    return sizes


def with_a_large_one(samples):
    return [dataclasses.replace(samples[0], height=127, width=127), *samples[1:]]


def test_images_that_a_cache_keeps_take_no_memory(samples, required, monkeypatch):
    slots, mark, mixed = WINDOW + 2 * BATCH, 8, with_a_large_one(samples)
    make_loader(mixed, RECIPES["shuffled"])
    assert required.pop() == slots * (mark + 3 * 127 * 127)
    loader = make_loader(mixed, RECIPES["shuffled"], cache="ram")
    assert loader.cached == "all" and loader._source.recent is None
    assert sum(required) == 0
    # Half of it is for the cache: the first image, and none after it.
    monkeypatch.setattr(image_cache, "free_memory", lambda: 2 * (4096 + 3 * 127 * 127))
    assert make_loader(mixed, RECIPES["shuffled"], cache="ram").cached == "part"
    others = max(sample.height * sample.width for sample in mixed[1:])
    assert required.pop() == slots * (mark + 3 * others)


def test_machines_whose_caches_hold_all_and_a_part_start_together(samples, monkeypatch):
    free = threading.local()  # each rank is a machine
    monkeypatch.setattr(image_cache, "free_memory", lambda: free.bytes)

    def rank(world):
        free.bytes = 2**30 if world.process.is_main else 2 * (4096 + 3 * 100 * 100)
        process = world.process._replace(local_rank=0)
        with make_loader(
            samples, RECIPES["shuffled"], cache="ram", world=world._replace(process=process)
        ) as loader:
            return loader.cached, loader._source.recent is None

    assert run_rank_threads(2, rank) == [("all", True), ("part", False)]


@pytest.mark.parametrize("without", [{"mosaic": 0.0}, {"mosaic_epochs": 0}], ids=str)
def test_without_mosaics_nothing_is_kept_and_no_batch_changes(samples, required, without):
    augment = dataclasses.replace(EVERYTHING, **without)
    loader = make_loader(samples, RECIPES["shuffled"], augment=augment)
    assert loader._source.recent is None and not required
    assert digests(loader) == digests(make_loader(samples, BatchRecipe(), augment=augment))


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--override", "mosaic=0", "mixup=0.1"], ["mixup", "--mosaic-window"]),
        (["--override", "mosaic=0.1"], []),
    ],
)
def test_a_window_without_mosaics_is_told(samples, caplog, flags, told):
    values, _ = read_train_flags(["--mosaic-window", "6", "--workers", "0", *flags])
    config = TrainConfig(**values)
    job = SimpleNamespace(
        config=config,
        hyp=read_hyperparameters(config.hyp, config.override),
        train_samples=samples,
        world=ALONE,
        items=BOXES,
    )
    with caplog.at_level(logging.INFO):
        train.train_loader(job).close()
    reason = "it changes only mosaics, and there are none (mosaic: 0)"
    assert caplog.messages == [f"{name} has no effect: {reason}" for name in told]


def test_another_order_of_the_same_epoch_gets_its_own_images(samples):
    num_classes = 1 + max(int(sample.class_index.max()) for sample in samples)
    scores = (0.9, *[0.0] * (num_classes - 1))  # order the epoch anew with --image-weights
    expected = digest(make_loader(samples, RECIPES["weighted"]).batch(1, 1, scores))
    loader = make_loader(samples, RECIPES["weighted"])
    assert digest(loader.batch(1, 1)) != expected
    assert digest(loader.batch(1, 1, scores)) == expected


@pytest.mark.parametrize("name", ["shuffled", "quad"])
def test_the_shards_of_two_ranks_are_the_batches_of_one_process(samples, name, monkeypatch):
    recipe, get, one_at_a_time = RECIPES[name], recent_images.RecentImages.get, threading.Lock()

    # The ranks are threads here, and a lock on a file keeps out other processes only.
    def get_alone(*arguments):
        with one_at_a_time:
            return get(*arguments)

    monkeypatch.setattr(recent_images.RecentImages, "get", get_alone)

    def rank(world):
        with make_loader(samples, recipe, world=world) as loader:
            return list(loader.epoch(1))

    whole = list(make_loader(samples, recipe).epoch(1))
    for batch, *shards in zip(whole, *run_rank_threads(2, rank), strict=True):
        joined = np.concatenate([shard.images for shard in shards])
        np.testing.assert_array_equal(joined, batch.images)


def test_each_image_of_an_epoch_is_decoded_at_most_once(samples, decoded):
    loader = make_loader(samples, RECIPES["shuffled"])
    for epoch in range(3):
        decoded.clear()
        list(loader.epoch(epoch))
        assert len(decoded) > NUM_SAMPLES // 2
        assert set(decoded.values()) == {1}
    decoded.clear()
    list(make_loader(samples, BatchRecipe()).epoch(0))
    assert max(decoded.values()) > 1


def test_the_tiles_of_a_sample_lie_in_the_window_before_it(samples, decoded):
    table, strong = table_of(samples), AugmentConfig(mosaic=1.0)
    source = TrainBatches(table, 64, 1, strong, 0, recipe=RECIPES["shuffled"])
    order = [samples[index].image_path.name for index in source.indices(Epoch(0), 0)] + [
        samples[source.indices(Epoch(0), number)[0]].image_path.name
        for number in range(1, NUM_SAMPLES)
    ]
    seen_behind = set()
    for position in range(WINDOW, NUM_SAMPLES):
        decoded.clear()
        source.build(Epoch(0), position, np.empty(source.shape(position), np.uint8))
        behind = {position - order.index(name) for name in decoded}
        assert behind <= set(range(WINDOW))
        seen_behind |= behind
    assert seen_behind == set(range(WINDOW))
