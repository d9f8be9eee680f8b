"""Mosaics of images near each other in the order: which, how often decoded, the same for all."""

import dataclasses
import logging
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

import train
from tests.unit.data.batch_digest import EVERYTHING, digest
from utils.cli.hyperparameters import read_hyperparameters
from utils.cli.train_config import TrainConfig, read_train_flags
from utils.data.augment.strengths import AugmentConfig
from utils.data.loading import batches, image_cache, memory
from utils.data.loading.batches import TrainBatches
from utils.data.loading.items import BOXES
from utils.data.loading.loader import TrainLoader
from utils.data.loading.order import BatchRecipe, Epoch
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


@pytest.fixture
def required(monkeypatch):
    """Return the bytes that each ring required."""
    sizes = []
    monkeypatch.setattr(image_cache, "require_memory", lambda size, *_: sizes.append(size))
    return sizes


def test_a_window_takes_memory_unless_a_cache_keeps_the_images(samples, required, monkeypatch):
    slots, mark = WINDOW + 2 * BATCH, 8
    mixed = [dataclasses.replace(samples[0], height=127, width=127), *samples[1:]]
    make_loader(mixed, RECIPES["shuffled"])
    assert required.pop() == slots * (mark + 3 * 127 * 127)
    assert make_loader(mixed, RECIPES["shuffled"], cache="ram").cached == "all"
    assert not required
    monkeypatch.undo()
    monkeypatch.setattr(memory, "free_memory", lambda: 1000)
    message = f"--mosaic-window: {slots} decoded images .*; use a smaller --mosaic-window or"
    with pytest.raises(UserError, match=message):
        make_loader(mixed, RECIPES["shuffled"])


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
