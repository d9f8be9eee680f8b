"""Batches of each recipe: the same for any workers, ranks and start, and with the right images."""

import json

import numpy as np
import pytest

from duet.utils.data.loading.batches import TrainRecipe
from duet.utils.data.loading.loader import TrainLoader
from duet.utils.data.loading.order import Epoch
from duet.utils.data.sources.dataset import load_dataset
from duet.utils.data.sources.splits import load_split
from duet.utils.processes.world import ALONE, World
from duet.utils.strengths import AugmentConfig
from tests.shared_files import shared_path
from tests.unit.data.batch_digest import EVERYTHING, digest

BATCH = 8
RECIPES = {"rect": {"rectangular": True}, "image-weights": {"image_weights": True}}
SCORES = (0.9, 0.1, 0.3, 0.0, 0.5)


def make_loader(samples, recipe, workers=0, process=ALONE.process, cache="", **changes):
    choices = {"image_size": 64, "batch_size": BATCH, "augment": EVERYTHING, **changes}
    recipe = TrainRecipe(**choices, **recipe)
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
    square = make_loader(samples, {})
    square.align(64)
    assert square.largest_shape == (BATCH, 3, 64, 64)


@pytest.mark.parametrize("dataset", ["bccd", "coco256"])
@pytest.mark.parametrize(("size", "batch"), [(320, 16), (640, 16), (416, 5)])
def test_training_rectangles_have_the_public_shapes_in_the_public_order(dataset, size, batch):
    stored = json.loads(shared_path("golden/recipe/info.json").read_text())["rect"]
    expected = stored[f"{dataset}_train_img{size}_b{batch}_pad0_s32"]
    yaml = load_dataset(shared_path(f"data/{dataset}/{dataset}.yaml"))
    samples = load_split(yaml, "train")
    loader = TrainLoader(samples, TrainRecipe(size, batch, rectangular=True))
    source = loader._source
    shapes = [list(source.shape(index)[2:]) for index in range(len(loader))]
    assert shapes == expected["shapes"]
    order = np.concatenate([source.indices(Epoch(0), index) for index in range(len(loader))])
    ratio = {sample.image_path.name: sample.height / sample.width for sample in samples}
    ratios = [ratio[samples[index].image_path.name] for index in order]
    first, last = ([ratio[name] for name in expected[f"{end}_files"]] for end in ("first", "last"))
    assert ratios[: len(first)] == first  # of equal ones any may be the first
    assert ratios[-len(last) :] == last
