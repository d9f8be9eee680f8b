"""Batches of each recipe: the same for any workers, ranks and start, and with the right images."""

import dataclasses
import json
import logging
import math
from collections import Counter

import cv2
import numpy as np
import pytest

from duet.utils import memory
from duet.utils.cli.hyperparameters import read_hyperparameters
from duet.utils.cli.train_config import TrainConfig, read_train_flags
from duet.utils.data.loading import batches
from duet.utils.data.loading.batches import TrainRecipe
from duet.utils.data.loading.loader import TrainLoader
from duet.utils.data.loading.order import SQUARE, BatchRecipe, Epoch
from duet.utils.data.sources.dataset import load_dataset
from duet.utils.data.sources.splits import load_split
from duet.utils.errors import UserError
from duet.utils.processes.world import ALONE, World
from duet.utils.state.job import Job, TrainData, train_loader
from duet.utils.strengths import AugmentConfig
from tests.shared_files import shared_path
from tests.unit.data.batch_digest import EVERYTHING, digest

NUM_SAMPLES, BATCH = 22, 8
RECIPES = {
    "rect": BatchRecipe(rectangular=True),
    "quad": BatchRecipe(quad=True),
    "image-weights": BatchRecipe(image_weights=True),
    "repeat-factor": BatchRecipe(repeat_factor=0.9),
    "quad-and-weights": BatchRecipe(quad=True, image_weights=True),
}
SCORES = (0.9, 0.1, 0.3, 0.0, 0.5)


def make_loader(samples, recipe, workers=0, process=ALONE.process, cache="", **changes):
    choices = {"image_size": 64, "batch_size": BATCH, "augment": EVERYTHING, **changes}
    recipe = TrainRecipe(**choices, order=recipe)
    return TrainLoader(samples, recipe, workers, cache, World(process))


def batches_of(loader, epoch=1, first=0):
    with loader:
        return list(loader.epoch(epoch, first, SCORES))


def digests(loader, *place):
    return [digest(batch) for batch in batches_of(loader, *place)]


def test_the_figures_of_the_classes_change_what_is_shown_with_image_weights_alone(samples):
    for name, recipe in RECIPES.items():
        loader = make_loader(samples, recipe)
        with_others = [digest(batch) for batch in loader.epoch(1, 0, (0.0, 0.0, 0.0, 0.0, 0.99))]
        assert (digests(loader) != with_others) == ("weights" in name)


def test_an_epoch_with_repeats_is_longer_and_has_that_many_images(samples):
    plain, longer = (make_loader(samples, recipe) for recipe in (SQUARE, RECIPES["repeat-factor"]))
    assert (plain.num_images, len(plain)) == (NUM_SAMPLES, 3)
    assert longer.num_images > NUM_SAMPLES
    assert len(longer) == math.ceil(longer.num_images / BATCH)
    shown = np.concatenate([batch.sample_indices for batch in batches_of(longer)])
    assert len(shown) == longer.num_images and set(shown) == set(range(NUM_SAMPLES))


def test_a_quad_is_made_of_the_images_of_an_epoch_without_quads(samples):
    singles = np.concatenate([batch.images for batch in make_loader(samples, SQUARE).epoch(1)])
    batches = batches_of(make_loader(samples, RECIPES["quad"]))
    # 22 images are five fours; the last two are left out.
    assert [batch.images.shape for batch in batches] == [(2, 3, 128, 128)] * 2 + [(1, 3, 128, 128)]
    assert [len(batch.sample_indices) for batch in batches] == [8, 8, 4]
    kinds = set()
    for number, image in enumerate(np.concatenate([batch.images for batch in batches])):
        four = singles[4 * number :][:4]
        columns = [np.concatenate(four[i : i + 2], axis=1) for i in (0, 2)]
        enlarged = cv2.resize(four[0].transpose(1, 2, 0).astype(np.float32), (128, 128))
        kinds.add((
            np.array_equal(image, np.concatenate(columns, axis=2)),
            np.array_equal(image, enlarged.astype(np.uint8).transpose(2, 0, 1)),
        ))  # fmt: skip
    assert kinds == {(True, False), (False, True)}


def test_quads_of_fewer_than_four_images_are_refused(samples):
    with pytest.raises(UserError, match="--quad joins 4 images, there are 3; leave it out"):
        make_loader(samples[:3], RECIPES["quad"])
    with make_loader(samples[:4], RECIPES["quad"]) as loader:
        assert [len(batch.images) for batch in loader.epoch(0)] == [1]


def test_rectangular_batches_hold_whole_images_from_wide_to_tall(samples):
    plain = AugmentConfig(mosaic=1.0)
    loader = make_loader(samples, RECIPES["rect"], augment=plain, image_size=128, batch_size=4)
    batches = batches_of(loader)
    order = np.concatenate([batch.sample_indices for batch in batches])
    ratios = [samples[index].height / samples[index].width for index in order]
    assert ratios == sorted(ratios)
    assert len({batch.images.shape[2:] for batch in batches}) > 1
    for batch in batches:
        height, width = batch.images.shape[2:]
        for place, index in enumerate(batch.sample_indices.tolist()):
            sample = samples[index]
            rows = batch.targets.image_index == place
            # No mosaic: the image's own objects alone, in the middle of the batch's shape.
            np.testing.assert_array_equal(batch.targets.class_index[rows], sample.class_index)
            scale = 128 / max(sample.height, sample.width)
            middle = sample.boxes_cxcywh_norm - [0.5, 0.5, 0, 0]
            expected = middle * np.tile([sample.width, sample.height], 2) * scale
            expected += np.array([width, height, 0, 0]) / 2
            found = batch.targets.boxes_cxcywh_norm[rows] * [width, height, width, height]
            # Sides and borders are whole pixels: each end of a box may lie one off.
            np.testing.assert_allclose(found, expected, atol=1)


def test_the_sides_of_rectangles_follow_the_stride_of_the_model(samples):
    with make_loader(samples, RECIPES["rect"], workers=1) as loader:
        assert {side % 32 for batch in loader.epoch(0) for side in batch.images.shape[2:]} == {0}
        before = loader.largest_shape
        loader.align(64)
        shapes = {batch.images.shape for batch in loader.epoch(0)}
        assert {side % 64 for shape in shapes for side in shape[2:]} == {0}
        assert loader.largest_shape in shapes and loader.largest_shape >= before
    square = make_loader(samples, SQUARE)
    square.align(64)
    assert square.largest_shape == (BATCH, 3, 64, 64)


@pytest.mark.parametrize("dataset", ["bccd", "coco256"])
@pytest.mark.parametrize(("size", "batch"), [(320, 16), (640, 16), (416, 5)])
def test_training_rectangles_have_the_public_shapes_in_the_public_order(dataset, size, batch):
    stored = json.loads(shared_path("golden/recipe/info.json").read_text())["rect"]
    expected = stored[f"{dataset}_train_img{size}_b{batch}_pad0_s32"]
    yaml = load_dataset(shared_path(f"data/{dataset}/{dataset}.yaml"))
    samples = load_split(yaml, "train")
    loader = TrainLoader(samples, TrainRecipe(size, batch, order=RECIPES["rect"]))
    source = loader._source
    shapes = [list(source.shape(index)[2:]) for index in range(len(loader))]
    assert shapes == expected["shapes"]
    order = np.concatenate([source.indices(Epoch(0), index) for index in range(len(loader))])
    ratio = {sample.image_path.name: sample.height / sample.width for sample in samples}
    ratios = [ratio[samples[index].image_path.name] for index in order]
    first, last = ([ratio[name] for name in expected[f"{end}_files"]] for end in ("first", "last"))
    assert ratios[: len(first)] == first  # of equal ones any may be the first
    assert ratios[-len(last) :] == last


WINDOW = 6
NEAR = BatchRecipe(mosaic_window=WINDOW)


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


def test_a_window_takes_memory_unless_a_cache_keeps_the_images(samples, monkeypatch):
    assert make_loader(samples, NEAR)._source.num_recent == 2 * WINDOW
    cached = make_loader(samples, NEAR, cache="ram")
    assert cached.cached == "all" and cached._source.num_recent == 0
    monkeypatch.setattr(memory, "free_memory", lambda: 1000)
    message = "--mosaic-window: 12 decoded images .*; use a smaller --mosaic-window or"
    with pytest.raises(UserError, match=message):
        make_loader(samples, NEAR)


@pytest.mark.parametrize("without", [{"mosaic": 0.0}, {"mosaic_epochs": 0}], ids=str)
def test_without_mosaics_nothing_is_kept_and_no_batch_changes(samples, without):
    augment = dataclasses.replace(EVERYTHING, **without)
    loader = make_loader(samples, NEAR, augment=augment)
    assert loader._source.num_recent == 0
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
    hyp = read_hyperparameters(config.hyp, config.override)
    job = Job(config, hyp, TrainData((), samples, samples))
    with caplog.at_level(logging.INFO):
        train_loader(job).close()
    reason = "it applies only to mosaics, which are off (mosaic: 0)"
    assert caplog.messages == [f"{name} has no effect: {reason}" for name in told]


def test_each_image_of_an_epoch_is_decoded_at_most_once(samples, decoded):
    loader = make_loader(samples, NEAR)
    for epoch in range(3):
        decoded.clear()
        list(loader.epoch(epoch))
        assert len(decoded) > NUM_SAMPLES // 2
        assert set(decoded.values()) == {1}
    decoded.clear()
    list(make_loader(samples, BatchRecipe()).epoch(0))
    assert max(decoded.values()) > 1
