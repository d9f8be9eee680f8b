"""Results of each task for other programs: plain values, JSON, pandas, labels, image files."""

import json
import os
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
import pytest
from pycocotools import mask as coco

from duet.utils.data.image.image_file import LONGEST_SIDES, save_image
from duet.utils.detect.results.result import ClassScore, Detection, Result
from duet.utils.errors import UserError
from tests.environments import shared_path
from tests.unit.detect.made import make_class_result, make_mask_result, make_result

BOXES = [[10.5, 20.25, 80, 100], [1, 2, 3, 4], [5, 6, 60, 50]]
SCORES = [0.75, 0.5, 0.25]
NAMES = ("person", "自行车", "bus")


def result(source="street.jpg", number=None, found=3):
    rows = [
        (*box, score, index) for box, score, index in zip(BOXES, SCORES, (0, 1, 0), strict=True)
    ]
    return make_result(source, *rows[:found], size=(120, 160), number=number, class_names=NAMES)


def test_result_converts_to_plain_values():
    assert result(Path("a/street.jpg"), 7).to_dict() == {
        "source": "a/street.jpg",
        "frame": 7,
        "seconds": 0.875,
        "height": 120,
        "width": 160,
        "detections": [
            {"box_xyxy": box, "score": score, "class_index": index, "name": NAMES[index]}
            for box, score, index in zip(BOXES, SCORES, (0, 1, 0), strict=True)
        ],
    }
    assert result(found=0).to_dict()["detections"] == []


def test_result_is_a_sequence():
    found = result()
    assert isinstance(found, Sequence) and len(found) == 3
    assert (found[0].name, found[-1].score) == ("person", 0.25)
    assert found[:2] == [found[0], found[1]] and [*reversed(found)] == [*found][::-1]
    assert found[1] in found
    with pytest.raises(IndexError):
        result(found=0)[0]


def test_result_summary_is_one_line_for_any_class_name():
    found = make_result("a.jpg", (*BOXES[0], 0.5, 0), size=(96, 112), class_names=("a\n\x1b[31m",))
    assert found.summary() == r"96x112 1 a\n\x1b[31m"
    assert found.summary((64, 96)) == r"64x96 1 a\n\x1b[31m"


def test_result_json_is_utf8_for_any_name():
    text = result(os.fsdecode(b"caf\xe9 \xe8\xa1\x97.jpg")).to_json()
    assert "自行车" in text and "\n" not in text
    found = json.loads(text.encode("utf-8"))
    assert found["source"] == r"caf\udce9 街.jpg"
    assert found["detections"][0]["box_xyxy"] == BOXES[0]


def test_tracked_result_exposes_its_ids_everywhere():
    plain = result()
    tracked = Result(plain.frame, plain.detections, NAMES, np.array([3, -1, 12]))
    assert [found.track_id for found in tracked] == [3, -1, 12]
    assert [record["track_id"] for record in tracked.to_dict()["detections"]] == [3, -1, 12]
    assert [found.track_id for found in plain] == [None] * 3


def test_result_converts_to_a_data_frame():
    pytest.importorskip("pandas")
    table = result().to_pandas()
    assert list(table.columns) == ["xmin", "ymin", "xmax", "ymax", "confidence", "class", "name"]
    np.testing.assert_array_equal(table.iloc[:, :4], BOXES)
    assert table["confidence"].tolist() == SCORES
    assert table["class"].tolist() == [0, 1, 0]
    assert table["name"].tolist() == ["person", "自行车", "person"]
    empty = result(found=0).to_pandas()
    assert list(empty.columns) == list(table.columns) and len(empty) == 0
    assert (empty.dtypes == table.dtypes).all()


LOSSY = {".jpg": 3, ".jpeg": 3, ".webp": 6}  # grey values; measured 1, 1 and 3


@pytest.mark.parametrize("suffix", [*LONGEST_SIDES, ".JPG"])
def test_saved_image_keeps_its_colours(tmp_path, suffix):
    image = np.zeros((20, 30, 3), np.uint8)
    image[:] = (200, 120, 40)
    save_image(tmp_path / f"a{suffix}", image)
    found = cv2.imread(str(tmp_path / f"a{suffix}"))[:, :, ::-1].astype(int)
    assert np.abs(found - image).max() <= LOSSY.get(suffix.lower(), 0)


@pytest.mark.parametrize("name", ["a.gif", "a", "a.txt", "a.webp"])
def test_unsuitable_image_suffix_lists_suitable_ones(tmp_path, name):
    with pytest.raises(UserError, match=r"20000x1 px .*\.bmp, \.jpeg, \.jpg, \.png"):
        save_image(tmp_path / name, np.zeros((1, 20_000, 3), np.uint8))
    assert os.listdir(tmp_path) == []


def test_result_saves_its_labels(tmp_path):
    result = make_result("a.jpg", (0, 10, 30, 30, 0.5, 1), (0, 0, 60, 40, 0.25, 0))
    result.save_txt(tmp_path / "a.txt")
    assert (tmp_path / "a.txt").read_text() == "0 0.5 0.5 1 1\n1 0.25 0.5 0.5 0.5\n"
    result.save_txt(str(tmp_path / "a.txt"), scores=True)
    assert (tmp_path / "a.txt").read_text() == "0 0.5 0.5 1 1 0.25\n1 0.25 0.5 0.5 0.5 0.5\n"
    make_result("a.jpg").save_txt(tmp_path / "a.txt")
    assert (tmp_path / "a.txt").read_text() == ""


# Classes and masks.


CLASSES = ("cat", "dog", "tie", "军装", "bird", "bus", "car")
PROBABILITIES = [0.125, 0.5, 0.0625, 0.125, 0.03125, 0.15625, 0.0]
ORDER = [1, 5, 0, 3, 2]  # of equal ones the lower number first


def classes(probabilities=PROBABILITIES):
    return make_class_result("a.jpg", probabilities, class_names=CLASSES)


def test_top_five_classes_are_ordered_by_probability():
    found = classes()
    assert found.top5.tolist() == ORDER and len(found) == 5
    assert found.names == ["dog", "bus", "cat", "军装", "tie"]
    assert found.scores.tolist() == [0.5, 0.15625, 0.125, 0.125, 0.0625]
    assert list(found)[1] == ClassScore(0.15625, 5, "bus")
    assert found.probabilities.tolist() == PROBABILITIES


def test_class_table_has_five_rows():
    pytest.importorskip("pandas")
    table = classes().to_pandas()
    assert list(table.columns) == ["confidence", "class", "name"]
    assert table["class"].tolist() == ORDER and table["name"][0] == "dog"


def test_nan_probability_is_never_a_class():
    found = classes([float("nan"), 0.5, 0.25, float("nan"), 0.125, float("inf"), 0.0])
    assert found.top5.tolist() == [1, 2, 4, 6]
    nothing = classes([float("nan")] * 7)
    assert (len(nothing), nothing.words(), nothing.counted) == (0, "(no class)", [])
    np.testing.assert_array_equal(nothing.plot(), nothing.image)


MASKS = np.zeros((3, 40, 60), bool)
MASKS[0, 10:30, 10:40] = True
MASKS[1, 5:9, 50:60] = MASKS[1, 20:38, 45:50] = True  # two pieces, of as many points
MASKS[1, 21, 44] = True  # and one more point
ROWS = ((10, 10, 40, 30, 0.5, 1), (44, 5, 60, 38, 0.25, 0), (50, 0, 58, 4, 0.125, 2))


def mask_result(**options):
    return make_mask_result("a.png", MASKS, *ROWS, **options)


def test_masks_are_available_singly_and_as_one_array():
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
def test_mask_labels_match_stored_native_polygons(name):
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


def test_mask_label_is_its_largest_piece_or_the_box():
    lines = mask_result(track_ids=np.array([7, -1, 3])).text_lines(scores=True)
    box = "0.833333 0 0.966667 0 0.966667 0.1 0.833333 0.1"
    assert lines[0] == f"2 {box} 0.125 3"
    assert lines[2] == "1 0.166667 0.25 0.166667 0.725 0.65 0.725 0.65 0.25 0.5 7"
    corners = np.array(lines[1].split()[1:-2], float).reshape(-1, 2) * (60, 40)
    assert corners.min(axis=0).round().tolist() == [44, 20]
    assert mask_result().text_lines()[2] == lines[2][:-6]


@pytest.mark.filterwarnings("ignore:__array__ implementation")  # of pycocotools
def test_json_masks_decode_with_coco():
    record = json.loads(mask_result().to_json())
    assert [found["name"] for found in record["detections"]] == ["traffic light", "person", "cat"]
    for found, mask in zip(record["detections"], MASKS, strict=True):
        np.testing.assert_array_equal(coco.decode(found["segmentation"]), mask)
    assert list(mask_result())[0] == Detection((10.0, 10.0, 40.0, 30.0), 0.5, 1, "traffic light")


def test_image_without_objects_stays_unchanged():
    nothing = make_mask_result("a.png", MASKS[:0])
    assert nothing.text_lines() == []
    np.testing.assert_array_equal(nothing.plot(), nothing.image)
