"""Items of classes and of masks: from samples to batches."""

import dataclasses

import cv2
import numpy as np
import pytest

from duet.utils.data.image.decoding import LabelledImage
from duet.utils.data.image.letterbox import centre_region, crop
from duet.utils.data.loading.batch import Batch
from duet.utils.data.loading.batches import TrainRecipe
from duet.utils.data.loading.items import CLASSES, MaskItems, complete_outlines
from duet.utils.data.loading.loader import TrainLoader, ValLoader
from duet.utils.data.sources.dataset import load_dataset
from duet.utils.data.sources.samples import SampleTable
from duet.utils.data.sources.splits import load_split
from duet.utils.processes.world import ALONE
from tests.outlines import make_polygons
from tests.unit.data.batch_digest import EVERYTHING, OF_CLASSES, digest

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
    "size", [(375, 500), (1000, 1000), (3000, 4000), (224, 9000), (20, 20), (20000, 30000)]
)
def test_an_image_is_kept_as_small_as_no_crop_is_enlarged_by_it(size):
    smallest = min((0.08 * size[0] * size[1] * 0.75) ** 0.5, *size)
    scale = min(1, 224 / smallest)
    kept = CLASSES.kept_size(size, 224)
    assert all(side * scale <= now < side * scale + 1 for side, now in zip(size, kept, strict=True))


KINDS = {"overlap": MaskItems(), "separate": MaskItems(ratio=2, overlap=False)}
BATCH = 8


def train_batches(samples, items, rectangular) -> list[Batch]:
    recipe = TrainRecipe(64, BATCH, EVERYTHING, rectangular=rectangular, items=items)
    with TrainLoader(samples, recipe) as loader:
        return list(loader.epoch(1))


def val_batches(samples, items) -> list[Batch]:
    with ValLoader(samples, 64, BATCH, 0, 32, True, items=items) as loader:
        return list(loader)


@pytest.mark.parametrize("rectangular", [False, True], ids=["plain", "rect"])
@pytest.mark.parametrize("items", KINDS.values(), ids=KINDS)
def test_masks_change_neither_images_nor_boxes(samples, items, rectangular):
    plain = train_batches(samples, items=MaskItems.__base__(), rectangular=rectangular)
    for with_masks, without in zip(
        train_batches(samples, items=items, rectangular=rectangular), plain, strict=True
    ):
        targets = with_masks.targets
        assert digest(with_masks._replace(targets=targets._replace(masks=None))) == digest(without)
        assert len(targets.masks.map_index) == len(targets.masks.value) == len(targets.class_index)
        assert (np.diff(targets.masks.map_index) >= 0).all()
    for with_masks, without in zip(
        val_batches(samples, items), val_batches(samples, MaskItems.__base__()), strict=True
    ):
        targets = with_masks.targets._replace(masks=None)
        assert digest(with_masks._replace(targets=targets)) == digest(without)


def test_masks_lie_on_the_pixels_of_bright_objects(tmp_path):
    """Whatever moves an image moves its masks: of white objects on black they are the white."""
    for number in range(4):
        image = np.zeros((96, 128, 3), np.uint8)
        outline = np.array([(20, 20), (90, 30 + 5 * number), (70, 80), (50, 45), (25, 75)])
        cv2.fillPoly(image, [outline], (255, 255, 255))
        (tmp_path / "images").mkdir(exist_ok=True)
        (tmp_path / "labels").mkdir(exist_ok=True)
        cv2.imwrite(str(tmp_path / f"images/{number}.png"), image)
        points = " ".join(f"{x / 128} {y / 96}" for x, y in (outline + 0.5).tolist())
        (tmp_path / f"labels/{number}.txt").write_text(f"0 {points}\n")
    (tmp_path / "data.yaml").write_text("train: images\nval: images\nnames: [thing]\n")
    samples = load_split(load_dataset(tmp_path / "data.yaml"), "train")
    strengths = dataclasses.replace(EVERYTHING, hsv_v=0.0, mixup=0.0, copy_paste=0.5)
    common = either = 0
    for epoch in range(3):
        recipe = TrainRecipe(128, 4, strengths, epoch, items=MaskItems(ratio=1))
        with TrainLoader(samples, recipe) as loader:
            for batch in loader.epoch(epoch):
                white, maps = batch.images[:, 0] > 127, batch.targets.masks.maps > 0
                common, either = common + (white & maps).sum(), either + (white | maps).sum()
    assert either > 12 * 128 * 128 / 50
    assert common / either > 0.9  # measured 0.94: corners are cut, small remains are dropped


def item_of(outlines, boxes, size=(40, 60)) -> LabelledImage:
    polygons = None if outlines is None else make_polygons(outlines)
    boxes = np.array(boxes, np.float64).reshape(-1, 4)
    return LabelledImage(np.zeros((*size, 3), np.uint8), np.arange(len(boxes)), boxes, polygons)


TRIANGLE = [(4, 4), (36, 4), (4, 36)]


def test_an_object_without_an_outline_is_its_box():
    item = item_of([TRIANGLE, [], [(40, 8), (50, 8)]], [[4, 4, 36, 36], [44, 24, 55, 31], [0] * 4])
    masks = MaskItems(ratio=1, overlap=False).targets(item).masks
    assert masks.maps[1].sum() == 12 * 8 and masks.maps[1, 24:32, 44:56].all()
    assert masks.maps[0].sum() == 33 * 34 / 2  # the rows of a triangle with its borders
    assert masks.maps[2].sum() == 11  # two points are a line
    only_boxes = MaskItems(ratio=1).targets(item_of(None, [[44, 24, 55, 31]])).masks
    assert (only_boxes.maps == 1).sum() == 12 * 8 and only_boxes.value.tolist() == [1]
    np.testing.assert_array_equal(
        complete_outlines(None, np.array([[1.0, 2, 3, 4]])).points_xy,
        [(1, 2), (3, 2), (3, 4), (1, 4)],
    )


@pytest.mark.parametrize("overlap", [True, False])
def test_an_image_without_objects_has_an_empty_map_or_none(overlap):
    targets = MaskItems(overlap=overlap).targets(item_of(None, []))
    assert targets.masks.maps.shape == (int(overlap), 10, 15)
    assert targets.masks.maps.dtype == np.uint8 and not targets.masks.maps.any()
    assert len(targets.masks.map_index) == len(targets.masks.value) == 0
    assert targets.masks.map_index.dtype == targets.masks.value.dtype == np.int64
