"""Results of classifiers and with masks: in order, in words, in files, in other programs."""

import json

import numpy as np
import pytest
from pycocotools import mask as coco

from duet.utils.detect.results.result import ClassScore, Detection
from tests.shared_files import shared_path
from tests.unit.detect.results.made import make_class_result, make_mask_result

NAMES = ("cat", "dog", "tie", "军装", "bird", "bus", "car")
PROBABILITIES = [0.125, 0.5, 0.0625, 0.125, 0.03125, 0.15625, 0.0]
ORDER = [1, 5, 0, 3, 2]  # of equal ones the lower number first


def result(probabilities=PROBABILITIES, names=NAMES, **options):
    return make_class_result("a.jpg", probabilities, class_names=names, **options)


def test_the_five_most_probable_classes_come_in_their_order():
    found = result()
    assert found.top5.tolist() == ORDER and len(found) == 5
    assert found.names == ["dog", "bus", "cat", "军装", "tie"]
    assert found.scores.tolist() == [0.5, 0.15625, 0.125, 0.125, 0.0625]
    assert list(found)[1] == ClassScore(0.15625, 5, "bus")
    assert found.probabilities.tolist() == PROBABILITIES


def test_a_table_has_the_five_classes():
    pytest.importorskip("pandas")
    table = result().to_pandas()
    assert list(table.columns) == ["confidence", "class", "name"]
    assert table["class"].tolist() == ORDER and table["name"][0] == "dog"


def test_nan_is_no_class():
    found = result([float("nan"), 0.5, 0.25, float("nan"), 0.125, float("inf"), 0.0])
    assert found.top5.tolist() == [1, 2, 4, 6]
    nothing = result([float("nan")] * 7)
    assert (len(nothing), nothing.words(), nothing.counted) == (0, "(no class)", [])
    np.testing.assert_array_equal(nothing.plot(), nothing.image)


MASKS = np.zeros((3, 40, 60), bool)
MASKS[0, 10:30, 10:40] = True
MASKS[1, 5:9, 50:60] = MASKS[1, 20:38, 45:50] = True  # two pieces, of as many points
MASKS[1, 21, 44] = True  # and one more point
ROWS = ((10, 10, 40, 30, 0.5, 1), (44, 5, 60, 38, 0.25, 0), (50, 0, 58, 4, 0.125, 2))


def mask_result(**options):
    return make_mask_result("a.png", MASKS, *ROWS, **options)


def test_masks_come_one_by_one_and_as_one_array():
    masks = mask_result().masks
    assert len(masks) == 3 and masks[1].dtype == bool
    np.testing.assert_array_equal(masks[1], MASKS[1])
    np.testing.assert_array_equal(masks[-1], MASKS[2])
    for found, wanted in zip(masks, MASKS, strict=True):
        np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(np.asarray(masks), MASKS)
    assert np.asarray(masks, np.uint8).dtype == np.uint8
    with pytest.raises(IndexError):
        masks[3]
    with pytest.raises(TypeError):
        masks[1:]
    empty = make_mask_result("a.png", MASKS[:0])
    assert np.asarray(empty.masks).shape == (0, 40, 60) and list(empty.masks) == []


@pytest.mark.parametrize("name", ["640x480_of_427x640", "640x640_of_1080x810"])
def test_labels_are_the_stored_polygons_of_masks_at_the_size_of_the_image(name):
    stored = np.load(shared_path(f"golden/segment/assemble_{name}.npz"))
    shape = tuple(stored["native_shape"])
    masks = np.unpackbits(stored["native"])[: np.prod(shape)].reshape(shape).astype(bool)
    rows = [(*box, 0.5, 0) for box in stored["boxes_native"].tolist()]
    found = make_mask_result("a.png", masks, *rows)
    lines = [list(map(float, line.split())) for line in found.text_lines()[::-1]]
    for index, (line, outline) in enumerate(zip(lines, found.outlines, strict=True)):
        polygon = stored[f"polygon_native_{index}"]
        np.testing.assert_array_equal(outline, polygon)
        expected = polygon / np.array(shape[:0:-1])
        np.testing.assert_allclose(line[1:], expected.ravel(), rtol=5e-6)  # of six digits


def test_a_label_is_the_outline_of_the_piece_with_most_points_or_else_the_box():
    lines = mask_result(track_ids=np.array([7, -1, 3])).text_lines(scores=True)
    box = "0.833333 0 0.966667 0 0.966667 0.1 0.833333 0.1"
    assert lines[0] == f"2 {box} 0.125 3"
    assert lines[2] == "1 0.166667 0.25 0.166667 0.725 0.65 0.725 0.65 0.25 0.5 7"
    corners = np.array(lines[1].split()[1:-2], float).reshape(-1, 2) * (60, 40)
    assert corners.min(axis=0).round().tolist() == [44, 20]
    assert mask_result().text_lines()[2] == lines[2][:-6]


@pytest.mark.filterwarnings("ignore:__array__ implementation")  # of pycocotools
def test_json_has_the_masks_as_coco_reads_them():
    record = json.loads(mask_result().to_json())
    assert [found["name"] for found in record["detections"]] == ["traffic light", "person", "cat"]
    for found, mask in zip(record["detections"], MASKS, strict=True):
        np.testing.assert_array_equal(coco.decode(found["segmentation"]), mask)
    assert list(mask_result())[0] == Detection((10.0, 10.0, 40.0, 30.0), 0.5, 1, "traffic light")


def test_without_objects_the_image_stays_as_it_is():
    nothing = make_mask_result("a.png", MASKS[:0])
    assert nothing.text_lines() == []
    np.testing.assert_array_equal(nothing.plot(), nothing.image)
