"""What the loaders yield: which samples, in which order, as which arrays."""

import dataclasses
import json

import cv2
import numpy as np
import pytest

from duet.utils.data.loading.batches import TrainRecipe, ValRecipe
from duet.utils.data.loading.loader import TrainLoader, ValLoader
from duet.utils.data.loading.order import Epoch
from duet.utils.data.sources.dataset import load_dataset
from duet.utils.data.sources.splits import load_split
from duet.utils.errors import DatasetError, UserError, WorkerError
from duet.utils.geometry.boxes import cxcywh_to_xyxy
from duet.utils.strengths import AugmentConfig
from tests.environments import shared_path
from tests.unit.data.compared import EVERYTHING, digest

NUM_SAMPLES = 22


def train_loader(samples, workers=0, **changes):
    choices = {"image_size": 64, "batch_size": 4, "augment": EVERYTHING, **changes}
    return TrainLoader(samples, TrainRecipe(**choices), workers)


def digests(batches):
    return [digest(batch) for batch in batches]


def test_closing_epochs_equal_training_without_mosaic(samples):
    closing = train_loader(samples, mosaic_epochs=2)
    never = train_loader(samples, augment=dataclasses.replace(EVERYTHING, mosaic=0))
    assert digests(closing.epoch(1)) == digests(train_loader(samples).epoch(1))
    assert digests(closing.epoch(2)) == digests(never.epoch(2))
    assert digests(never.epoch(2)) != digests(train_loader(samples).epoch(2))


def test_epoch_shows_every_sample_once(samples):
    loader = train_loader(samples)
    batches = list(loader.epoch(0))
    assert len(batches) == len(loader) == 6
    assert [len(batch.images) for batch in batches] == [4, 4, 4, 4, 4, 2]
    indices = np.concatenate([batch.sample_indices for batch in batches])
    assert sorted(indices) == list(range(NUM_SAMPLES))
    assert list(indices) != list(range(NUM_SAMPLES))


def test_sample_does_not_depend_on_batch_size(samples):
    whole = next(train_loader(samples, batch_size=NUM_SAMPLES).epoch(3))
    position = 0
    for batch in train_loader(samples, batch_size=5).epoch(3):
        number = len(batch.images)
        np.testing.assert_array_equal(batch.images, whole.images[position : position + number])
        position += number
    assert position == NUM_SAMPLES


def test_batch_arrays_have_the_promised_types(samples):
    batch = next(train_loader(samples).epoch(0))
    assert (batch.images.shape, batch.images.dtype) == ((4, 3, 64, 64), np.uint8)
    assert batch.images.flags["C_CONTIGUOUS"]
    targets = batch.targets
    number = len(targets.image_index)
    assert number > 0
    assert (targets.image_index.shape, targets.image_index.dtype) == ((number,), np.int64)
    assert (targets.class_index.shape, targets.class_index.dtype) == ((number,), np.int64)
    boxes = targets.boxes_cxcywh_norm
    assert (boxes.shape, boxes.dtype) == ((number, 4), np.float32)
    assert batch.sample_indices.dtype == np.int64
    assert batch.letterboxes == ()
    assert (np.diff(targets.image_index) >= 0).all()
    corners = cxcywh_to_xyxy(boxes)
    assert corners.min() >= -1e-6  # float32 centre and size, rounded separately
    assert corners.max() <= 1 + 1e-6


def test_training_images_are_rgb(samples):
    # Without augmentation a sample at its own size is the decoded file inside grey.
    plain = AugmentConfig()
    sample = samples[0]
    side = max(sample.height, sample.width)
    (batch,) = train_loader([sample], image_size=side, augment=plain).epoch(0)
    image = cv2.cvtColor(cv2.imread(str(sample.image_path)), cv2.COLOR_BGR2RGB)
    expected = np.full((side, side, 3), 114, np.uint8)
    top, left = (side - sample.height) // 2, (side - sample.width) // 2
    expected[top : top + sample.height, left : left + sample.width] = image
    np.testing.assert_array_equal(batch.images[0], expected.transpose(2, 0, 1))
    np.testing.assert_array_equal(batch.targets.class_index, sample.class_index)


def test_validation_batches_group_similar_shapes(samples):
    loader = ValLoader(samples, ValRecipe(image_size=128, batch_size=4, stride=16))
    batches = list(loader)
    indices = np.concatenate([batch.sample_indices for batch in batches])
    assert sorted(indices) == list(range(NUM_SAMPLES))
    ratios = [samples[index].height / samples[index].width for index in indices]
    assert ratios == sorted(ratios)
    for batch in batches:
        long_sides = [max(letterbox.resized_size) for letterbox in batch.letterboxes]
        assert long_sides == [128] * len(batch.images)
        for axis in (0, 1):
            largest = max(letterbox.resized_size[axis] for letterbox in batch.letterboxes)
            # Room for the largest image and half a stride, and no stride more.
            side = batch.images.shape[2 + axis]
            assert side % 16 == 0
            assert largest + 8 <= side < largest + 8 + 16
            assert all(letterbox.input_size[axis] == side for letterbox in batch.letterboxes)
    assert len({batch.images.shape for batch in batches}) > 1


def test_square_validation_batches_keep_the_order(samples):
    batches = list(ValLoader(samples, ValRecipe(100, 8, stride=32, rectangular=False)))
    assert {batch.images.shape[2:] for batch in batches} == {(128, 128)}
    indices = np.concatenate([batch.sample_indices for batch in batches])
    assert list(indices) == list(range(NUM_SAMPLES))


@pytest.mark.parametrize("size", [(64, 96), (96, 64)])
def test_image_fills_the_fixed_network_size(samples, size):
    for batch in ValLoader(samples, ValRecipe(640, 8, fixed_size=size)):
        assert batch.images.shape[2:] == size
        for letterbox in batch.letterboxes:
            room = np.subtract(size, letterbox.resized_size)
            # One side is at most a pixel off, as the long side is a whole number.
            assert (room >= 0).all() and room.min() <= 1


def test_validation_targets_map_back_to_the_labels(samples):
    number = 0
    for batch in ValLoader(samples, ValRecipe(96, 4)):
        height, width = batch.images.shape[2:]
        corners = cxcywh_to_xyxy(batch.targets.boxes_cxcywh_norm) * [width, height, width, height]
        for position, letterbox in enumerate(batch.letterboxes):
            sample = samples[batch.sample_indices[position]]
            assert letterbox.original_size == (sample.height, sample.width)
            mine = batch.targets.image_index == position
            size = [sample.width, sample.height] * 2
            expected = cxcywh_to_xyxy(sample.boxes_cxcywh_norm * size)
            # float32 fractions of up to 128 pixels.
            np.testing.assert_allclose(letterbox.to_original(corners[mine]), expected, atol=1e-4)
            np.testing.assert_array_equal(batch.targets.class_index[mine], sample.class_index)
            number += mine.sum()
    assert number == sum(len(sample.class_index) for sample in samples)


def test_class_scores_matter_only_with_image_weights(samples):
    for name in ("rectangular", "image_weights"):
        loader = train_loader(samples, **{name: True})
        scores = (0.9, 0.1, 0.3, 0.0, 0.5), (0.0, 0.0, 0.0, 0.0, 0.99)
        first, second = (digests(loader.epoch(1, 0, some)) for some in scores)
        assert (first != second) == (name == "image_weights")


def test_rectangular_batches_hold_whole_images_by_aspect(samples):
    plain = AugmentConfig(mosaic=1.0)
    batches = list(train_loader(samples, augment=plain, image_size=128, rectangular=True).epoch(1))
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


def test_rectangle_sides_follow_the_model_stride(samples):
    with train_loader(samples, workers=1, rectangular=True) as loader:
        assert {side % 32 for batch in loader.epoch(0) for side in batch.images.shape[2:]} == {0}
        before = loader.largest_shape
        loader.align(64)
        shapes = {batch.images.shape for batch in loader.epoch(0)}
        assert {side % 64 for shape in shapes for side in shape[2:]} == {0}
        assert loader.largest_shape in shapes and loader.largest_shape >= before
    square = train_loader(samples)
    square.align(64)
    assert square.largest_shape == (4, 3, 64, 64)


@pytest.mark.parametrize("dataset", ["bccd", "coco256"])
@pytest.mark.parametrize(("size", "batch"), [(320, 16), (640, 16), (416, 5)])
def test_training_rectangles_match_public_shapes_and_order(dataset, size, batch):
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


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_beyond_free_memory_are_refused_first(samples, monkeypatch, workers):
    batch_bytes = 4 * 3 * 64 * 64
    needed = (4 if workers else 1) * batch_bytes  # two in the making, two in use
    monkeypatch.setattr("duet.utils.memory.free_memory", lambda: needed - 1)
    message = "batches of 4 images of 64 x 64 px, .* GiB are free; use a smaller --img"
    with pytest.raises(UserError, match=message):
        train_loader(samples, workers)
    with pytest.raises(UserError, match=message):
        ValLoader(samples, ValRecipe(64, 4, rectangular=False), workers)
    monkeypatch.setattr("duet.utils.memory.free_memory", lambda: needed)
    train_loader(samples, workers).close()


@pytest.mark.parametrize("workers", [0, 2])
def test_vanished_image_is_named(samples, tmp_path, workers):
    absent = tmp_path / "absent.jpg"
    broken = [*samples[:5], dataclasses.replace(samples[5], image_path=absent)]
    with (
        ValLoader(broken, ValRecipe(64, 2), workers) as loader,
        pytest.raises(DatasetError, match=f"{absent}: cannot be read: No such file"),
    ):
        list(loader)


@pytest.mark.parametrize(("workers", "kind"), [(0, RuntimeError), (2, WorkerError)])
def test_other_loading_failure_names_the_image(samples, workers, kind):
    wrong = dataclasses.replace(samples[0], boxes_cxcywh_norm=np.zeros((2, 3), np.float32))
    with (
        train_loader([wrong] * 8, workers) as loader,
        pytest.raises(kind, match=f"{wrong.image_path}: ValueError"),
    ):
        list(loader.epoch(0))
