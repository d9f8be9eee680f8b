"""Items of classes and of masks: from samples to batches."""

from pathlib import Path

import cv2
import numpy as np
import pytest
from pycocotools import mask as coco_mask

from duet.utils.data.image.decoding import LabelledImage
from duet.utils.data.image.letterbox import centre_region, crop
from duet.utils.data.loading.batches import TrainRecipe, ValRecipe
from duet.utils.data.loading.items import CLASSES, MASKS, MaskItems, complete_outlines
from duet.utils.data.loading.loader import TrainLoader, ValLoader
from duet.utils.data.sources.dataset import load_dataset
from duet.utils.data.sources.samples import Sample, SampleTable
from duet.utils.data.sources.splits import load_split
from duet.utils.processes.world import ALONE
from tests.coco_reference import runs_of
from tests.unit.data.compared import OF_CLASSES, make_polygons

# COCO's decoder warns of NumPy 2's keyword `copy`.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")
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


def test_class_batch_has_one_class_per_image(samples):
    for batch in train_loader(samples).epoch(0):
        number = len(batch.images)
        assert batch.images.shape == (number, 3, 32, 32)
        assert batch.targets.image_index.tolist() == list(range(number))
        expected = [int(samples[index].class_index[0]) for index in batch.sample_indices]
        assert batch.targets.class_index.tolist() == expected
        assert batch.targets.boxes_cxcywh_norm.tolist() == [[0.5, 0.5, 1, 1]] * number
        assert batch.targets.masks is None


def test_class_validation_shows_centres_in_order(samples):
    loader = ValLoader(samples, ValRecipe(32, 4, items=CLASSES))
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


def test_fixed_size_network_gets_crops_of_its_shape(samples):
    (batch,) = ValLoader(samples, ValRecipe(32, 16, fixed_size=(24, 48), items=CLASSES))
    assert batch.images.shape == (11, 3, 24, 48)
    file = cv2.imread(str(samples[0].image_path))  # 40 x 60
    expected = cv2.resize(file[5:35], (48, 24), interpolation=cv2.INTER_LINEAR)
    np.testing.assert_array_equal(batch.images[0], expected[..., ::-1].transpose(2, 0, 1))


@pytest.mark.parametrize(
    "size", [(375, 500), (1000, 1000), (3000, 4000), (224, 9000), (20, 20), (20000, 30000)]
)
def test_cached_size_is_the_smallest_that_enlarges_no_crop(size):
    smallest = min((0.08 * size[0] * size[1] * 0.75) ** 0.5, *size)
    scale = min(1, 224 / smallest)
    kept = CLASSES.kept_size(size, 224)
    assert all(side * scale <= now < side * scale + 1 for side, now in zip(size, kept, strict=True))


def item_of(outlines, boxes, size=(40, 60)) -> LabelledImage:
    polygons = None if outlines is None else make_polygons(outlines)
    boxes = np.array(boxes, np.float64).reshape(-1, 4)
    return LabelledImage(np.zeros((*size, 3), np.uint8), np.arange(len(boxes)), boxes, polygons)


TRIANGLE = [(4, 4), (36, 4), (4, 36)]


def test_object_without_outline_is_masked_by_its_box():
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
def test_image_without_objects_has_an_empty_map_or_none(overlap):
    targets = MaskItems(overlap=overlap).targets(item_of(None, []))
    assert targets.masks.maps.shape == (int(overlap), 10, 15)
    assert targets.masks.maps.dtype == np.uint8 and not targets.masks.maps.any()
    assert len(targets.masks.map_index) == len(targets.masks.value) == 0
    assert targets.masks.map_index.dtype == targets.masks.value.dtype == np.int64


HEIGHT, WIDTH = 60, 90


def sample_of(outlines, boxes):
    """A sample of objects in pixels; an outline may be empty."""
    size = np.array([WIDTH, HEIGHT])
    polygons = make_polygons([np.reshape(x, (-1, 2)) / size for x in outlines], np.float32)
    boxes = np.float32(boxes).reshape(-1, 4) / np.float32([*size, *size])
    return Sample(Path("a.jpg"), HEIGHT, WIDTH, np.arange(len(boxes)), boxes, None, polygons)


def drawn(outlines, size):
    """Of each outline (K, 2) in pixels the mask of pycocotools, (H, W) uint8."""
    rows = [coco_mask.frPyObjects([np.ravel(x).tolist()], *size) for x in outlines]
    return [coco_mask.decode(coco_mask.merge(row)) for row in rows]


def assert_masks(truth, masks):
    wanted = runs_of(masks)
    np.testing.assert_array_equal(truth.masks.values, wanted.values)
    np.testing.assert_array_equal(truth.masks.lengths, wanted.lengths)
    np.testing.assert_array_equal(truth.area, [np.count_nonzero(mask) for mask in masks])


def test_scored_masks_match_pycocotools_or_the_box():
    triangle = [5, 5, 40, 8, 20, 50]
    truth = MASKS.ground_truth(sample_of([[], triangle], [[45, 30, 20, 10], [20, 20, 30, 40]]))
    box = np.zeros((HEIGHT, WIDTH), bool)
    box[25:35, 35:55] = True
    # Of the labels' float32, as the sample has them.
    corners = np.float32(np.reshape(triangle, (3, 2)) / [WIDTH, HEIGHT]) * [WIDTH, HEIGHT]
    assert_masks(truth, [box, *drawn([corners], (HEIGHT, WIDTH))])


def test_image_without_objects_has_no_ground_truth_masks():
    nothing = np.zeros(0, np.int64), np.zeros((0, 4), np.float32)
    truth = MASKS.ground_truth(Sample(Path("a.jpg"), HEIGHT, WIDTH, *nothing))
    assert truth.masks.num_rows == 0 and truth.area.shape == (0,)
