"""The masks of labels have the pixels that pycocotools gives their outlines."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml
from pycocotools import mask as coco_mask

from duet.utils.data.loading.items import MASKS
from duet.utils.data.sources.dataset import load_dataset
from duet.utils.data.sources.samples import Sample
from duet.utils.data.sources.splits import load_split
from tests.coco_reference import runs_of
from tests.outlines import make_polygons
from tests.shared_files import shared_path

# COCO's decoder warns of NumPy 2's keyword `copy`.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")
HEIGHT, WIDTH = 60, 90
ground_truth = MASKS.ground_truth


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


def test_real_outlines_have_the_pixels_of_pycocotools(tmp_path):
    root = shared_path("data/coco256")
    (tmp_path / "images").symlink_to(root / "images/val2017")
    (tmp_path / "labels").mkdir()
    for path in sorted((root / "labels-seg/val2017").glob("*.txt"))[:20]:
        shutil.copy(path, tmp_path / "labels")
    (tmp_path / "data.yaml").write_text(yaml.safe_dump(
        {"train": "images", "val": "images", "names": [str(index) for index in range(80)]}
    ))  # fmt: skip
    samples = load_split(load_dataset(tmp_path / "data.yaml"), "val")
    assert samples.polygons_norm is not None
    labelled = [sample for sample in samples if sample.polygons_norm is not None]
    assert len(labelled) > 15
    for sample in labelled:
        size = sample.height, sample.width
        polygons = sample.polygons_norm
        pixels = [polygons.outline(i) * [sample.width, sample.height] for i in range(len(polygons))]
        assert_masks(ground_truth(sample), drawn(pixels, size))


def test_an_object_without_an_outline_is_its_box():
    triangle = [5, 5, 40, 8, 20, 50]
    truth = ground_truth(sample_of([[], triangle], [[45, 30, 20, 10], [20, 20, 30, 40]]))
    box = np.zeros((HEIGHT, WIDTH), bool)
    box[25:35, 35:55] = True
    # Of the labels' float32, as the sample has them.
    corners = np.float32(np.reshape(triangle, (3, 2)) / [WIDTH, HEIGHT]) * [WIDTH, HEIGHT]
    assert_masks(truth, [box, *drawn([corners], (HEIGHT, WIDTH))])


def test_an_image_without_objects_has_no_masks():
    nothing = np.zeros(0, np.int64), np.zeros((0, 4), np.float32)
    truth = ground_truth(Sample(Path("a.jpg"), HEIGHT, WIDTH, *nothing))
    assert truth.masks.num_rows == 0 and truth.area.shape == (0,)
