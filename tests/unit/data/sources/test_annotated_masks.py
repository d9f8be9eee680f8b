"""The masks of a COCO JSON: those that pycocotools makes of the same file; damaged ones refused."""

import json
from pathlib import Path

import numpy as np
import pytest
from pycocotools import mask as coco_mask
from pycocotools.coco import COCO

from duet.utils.data.sources.coco_annotations import read_coco_annotations, read_mask_annotations
from duet.utils.data.sources.label_file import MOST_CROSSINGS
from duet.utils.data.sources.samples import Sample
from duet.utils.errors import UserError
from tests.coco_reference import runs_of

HEIGHT, WIDTH = 60, 90
NO_LABELS = np.zeros(0, np.int64), np.zeros((0, 4), np.float32)
SAMPLES = [Sample(Path(name), HEIGHT, WIDTH, *NO_LABELS) for name in ("a.jpg", "b.jpg")]

# COCO's decoder warns of NumPy 2's keyword `copy`.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")


def compressed(mask):
    coded = coco_mask.encode(np.asfortranarray(mask.astype(np.uint8)))
    return {"size": list(mask.shape), "counts": coded["counts"].decode()}


def plain(mask):
    return {"size": list(mask.shape), "counts": runs_of([mask]).values.tolist()}


def polygon(random, points):
    return (random.uniform(-0.2, 1.2, (points, 2)) * (WIDTH, HEIGHT)).ravel().tolist()


def segmentations():
    """Of every form that COCO has; pieces overlap, touch the border and lie outside."""
    random = np.random.Generator(np.random.Philox(3))
    noise = random.uniform(size=(HEIGHT, WIDTH)) < 0.3
    single = [[polygon(random, 5)] for _ in range(20)]
    several = [[polygon(random, 4), polygon(random, 6), polygon(random, 3)] for _ in range(20)]
    masks = [plain(noise), compressed(noise), compressed(~noise), plain(noise & False)]
    return [*single, *several, *masks, [[5, 5, 30, 5, 30, 20, 5, 20], [10, 10, 20, 10, 20, 15]]]


def write(folder, given, **entry):
    """A file whose second image has an object with each of these segmentations."""
    objects = [
        {"id": number, "image_id": 7, "category_id": 1, "bbox": [10, 20, 30, 15], "iscrowd": 0,
         "area": 5.5, "segmentation": one, **entry}
        for number, one in enumerate(given, start=1)
    ]  # fmt: skip
    images = [
        {"id": number, "file_name": name, "height": HEIGHT, "width": WIDTH}
        for number, name in ((3, "a.jpg"), (7, "b.jpg"))
    ]
    content = {
        "images": images, "annotations": objects, "categories": [{"id": 1, "name": "cat"}],
    }  # fmt: skip
    path = folder / "instances.json"
    path.write_text(json.dumps(content))
    return path


def read(path):
    return read_coco_annotations(path, SAMPLES, ["cat"], masks=True)


@pytest.mark.parametrize("is_crowd", [0, 1])
def test_the_masks_are_those_of_pycocotools(tmp_path, is_crowd):
    path = write(tmp_path, segmentations(), iscrowd=is_crowd)
    found = read(path).ground_truth(1)
    truth = COCO(str(path))
    expected = [truth.annToMask(truth.anns[number]) for number in sorted(truth.anns)]
    wanted = runs_of(expected)
    assert found.masks.lengths.tolist() == wanted.lengths.tolist()
    np.testing.assert_array_equal(found.masks.values, wanted.values)
    assert found.is_crowd.tolist() == [bool(is_crowd)] * len(expected)
    assert (found.area == 5.5).all()


def test_an_object_without_a_segmentation_is_its_box_and_has_its_pixels_as_area(tmp_path):
    for nothing in ([], None, [[1, 2, 3, 4]]):
        found = read(write(tmp_path, [nothing], area=None)).ground_truth(1)
        box = np.zeros((HEIGHT, WIDTH), bool)
        box[20:35, 10:40] = True
        np.testing.assert_array_equal(found.masks.values, runs_of([box]).values)
        assert found.area.tolist() == [30 * 15]


def test_where_no_masks_are_asked_for_they_are_not_read(tmp_path):
    path = write(tmp_path, [{"size": [1, 1], "counts": "damaged"}])
    found = read_coco_annotations(path, SAMPLES, ["cat"]).ground_truth(1)
    assert found.masks is None and found.area.tolist() == [5.5]


@pytest.mark.parametrize(("segmentation", "text"), [
    ({"size": [HEIGHT, WIDTH - 1], "counts": [HEIGHT * (WIDTH - 1)]}, "its mask is 89x60 px"),
    ({"size": [WIDTH, HEIGHT], "counts": [HEIGHT * WIDTH]}, "its mask is 60x90 px"),
    ({"size": [HEIGHT, WIDTH], "counts": [5]}, "do not fill 90x60"),
    ([["a"] * 6], "cannot be used"), ([[1, 2, 3, 4, 5, 1e300]], "far beyond any image"),
])  # fmt: skip
def test_a_segmentation_that_cannot_be_used_is_named(tmp_path, segmentation, text):
    good = [[1, 1, 9, 1, 9, 9]]
    with pytest.raises(UserError, match=f"instances.json: annotation 2: .*{text}"):
        read(write(tmp_path, [good, segmentation, good]))


def test_a_file_of_boxes_alone_is_refused_where_masks_are_measured(tmp_path):
    path = write(tmp_path, [[], None, [[1, 2, 3, 4]]])
    text = "instances.json: none of its 3 objects has a segmentation, which masks require"
    with pytest.raises(UserError, match=text):
        read_mask_annotations(path, SAMPLES, ["cat"])
    runs = {"size": [HEIGHT, WIDTH], "counts": [HEIGHT * WIDTH]}
    for one in ([[1, 1, 9, 1, 9, 9]], runs):
        assert read_mask_annotations(write(tmp_path, [[], one]), SAMPLES, ["cat"])
    assert len(read_mask_annotations(write(tmp_path, []), SAMPLES, ["cat"]).objects) == 2


def test_pieces_that_go_to_and_fro_without_an_end_are_refused(tmp_path):
    """As in label files; here several objects of one image are over the bound together."""
    there_and_back = [0, 0, WIDTH, HEIGHT] * ((MOST_CROSSINGS + 10) // 4)
    assert read(write(tmp_path, [[there_and_back], [[1, 1, 9, 1, 9, 9]]])).objects
    text = "'b.jpg': outlines of 450,720 px in an image of 90x60; accepted: at most 450,000"
    with pytest.raises(UserError, match=text):
        read(write(tmp_path, [[there_and_back], [there_and_back]]))
