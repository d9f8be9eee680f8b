"""Batches of images that show one class each: the same bytes everywhere, the middle to validate."""

import cv2
import numpy as np
import pytest

from duet.utils.data.image.letterbox import centre_region, crop
from duet.utils.data.loading.batches import TrainRecipe
from duet.utils.data.loading.items import CLASSES
from duet.utils.data.loading.loader import TrainLoader, ValLoader
from duet.utils.data.sources.dataset import load_dataset
from duet.utils.data.sources.samples import SampleTable
from duet.utils.data.sources.splits import load_split
from duet.utils.processes.world import ALONE
from tests.unit.data.batch_digest import OF_CLASSES

SIZES = [(40, 60), (90, 30), (64, 64), (33, 47), (200, 160)]


@pytest.fixture(scope="module")
def samples(tmp_path_factory) -> SampleTable:
    folder = tmp_path_factory.mktemp("classes")
    for index in range(11):
        height, width = SIZES[index % len(SIZES)]
        image = np.random.default_rng(index).integers(0, 256, (height, width, 3), np.uint8)
        for split in ("train", "val"):
            path = folder / split / "abc"[index % 3] / f"{index}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            cv2.imwrite(str(path), image)
    return load_split(load_dataset(folder), "train", ALONE)


def train_loader(samples, workers=0, **changes) -> TrainLoader:
    choices = {"image_size": 32, "batch_size": 4, "augment": OF_CLASSES, "seed": 7, **changes}
    return TrainLoader(samples, TrainRecipe(**choices, items=CLASSES), workers)


def test_each_image_of_a_batch_has_the_class_of_its_sample(samples):
    for batch in train_loader(samples).epoch(0):
        number = len(batch.images)
        assert batch.images.shape == (number, 3, 32, 32)
        assert batch.targets.image_index.tolist() == list(range(number))
        expected = [int(samples[index].class_index[0]) for index in batch.sample_indices]
        assert batch.targets.class_index.tolist() == expected
        assert batch.targets.boxes_cxcywh_norm.tolist() == [[0.5, 0.5, 1, 1]] * number
        assert batch.targets.masks is None


def test_validation_shows_the_middle_of_each_image_in_their_order(samples):
    loader = ValLoader(samples, 32, 4, 0, items=CLASSES)
    batches = list(loader)
    indices = np.concatenate([batch.sample_indices for batch in batches])
    assert indices.tolist() == list(range(11))
    images = np.concatenate([batch.images for batch in batches])
    for sample, image in zip(samples, images, strict=True):
        file = cv2.imread(str(sample.image_path))
        expected = crop(file, centre_region(file.shape[:2], (32, 32)), (32, 32))
        np.testing.assert_array_equal(image, expected[..., ::-1].transpose(2, 0, 1))
    shorter = samples.sizes.min(axis=1).tolist()
    found = [letterbox.original_size for batch in batches for letterbox in batch.letterboxes]
    assert found == [(side, side) for side in shorter]
    targets = np.concatenate([batch.targets.class_index for batch in batches])
    assert targets.tolist() == samples.class_index.tolist()


def test_a_network_of_one_size_gets_crops_of_its_shape(samples):
    (batch,) = ValLoader(samples, 32, 16, 0, fixed_size=(24, 48), items=CLASSES)
    assert batch.images.shape == (11, 3, 24, 48)
    file = cv2.imread(str(samples[0].image_path))  # 40 x 60
    expected = cv2.resize(file[5:35], (48, 24), interpolation=cv2.INTER_LINEAR)
    np.testing.assert_array_equal(batch.images[0], expected[..., ::-1].transpose(2, 0, 1))


@pytest.mark.parametrize(
    ("size", "reduction"),
    [
        ((375, 500), 1),
        ((1000, 1000), 1),  # the smallest crop is 245 px
        ((3000, 4000), 2),  # 848 px
        ((6000, 8000), 4),
        ((224, 9000), 1),
        ((20, 20), 1),
        ((20000, 30000), 8),
    ],
)
def test_an_image_is_decoded_smaller_only_where_no_crop_is_enlarged_by_it(size, reduction):
    assert CLASSES.reduction(size, 224) == reduction
    smallest = min((0.08 * size[0] * size[1] * 0.75) ** 0.5, *size)
    assert reduction == 1 or smallest / reduction >= 224
